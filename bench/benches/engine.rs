//! What the engine's parts cost, in memory: `cargo bench -p betr-bench --bench engine`.
//!
//! For comparison between two states of the code, on a quiet machine; `bench/engines` compares with others.

use std::sync::Arc;

use betr_core::device::MemoryDevice;
use betr_core::format::{Update, data_key};
use betr_core::ids::TreeId;
use betr_core::kv::{Batch, Kv, KvOptions};
use betr_core::store::CacheBudget;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const COUNT: u32 = 100_000;
const AT_ONCE: u32 = 1000;

fn empty() -> Kv {
    let mut nonce = 0;
    let nonces = Box::new(move || {
        nonce += 1;
        nonce
    });
    let cache = CacheBudget::of(256 << 20);
    let options = KvOptions { cache, ..KvOptions::new(nonces) };
    Kv::create(Arc::new(MemoryDevice::new(1 << 30)), *b"a benchmark name", options).unwrap()
}

/// A key of sixteen bytes; neighbours come far apart.
fn key(number: u32) -> [u8; 16] {
    let mut key = [7; 16];
    key[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b1).to_be_bytes());
    key
}

fn insert(kv: &mut Kv, key: impl Fn(u32) -> [u8; 16]) {
    for first in (0..COUNT).step_by(AT_ONCE as usize) {
        let mut batch = Batch::new();
        (first..first + AT_ONCE)
            .for_each(|number| batch.insert(TreeId::Metadata, &key(number), &[1; 100]));
        kv.commit(batch).unwrap();
    }
}

fn filled() -> Kv {
    let mut kv = empty();
    insert(&mut kv, key);
    kv.checkpoint().unwrap();
    kv
}

fn writes(c: &mut Criterion) {
    let mut group = c.benchmark_group("write");
    group.sample_size(10).throughput(Throughput::Elements(COUNT.into()));
    group.bench_function("random inserts", |b| {
        b.iter_batched_ref(empty, |kv| insert(kv, key), BatchSize::PerIteration);
    });
    group.bench_function("inserts in order", |b| {
        let in_order = |number: u32| u128::from(number).to_be_bytes();
        b.iter_batched_ref(empty, |kv| insert(kv, in_order), BatchSize::PerIteration);
    });
    group.bench_function("patches", |b| {
        let patch = |kv: &mut Kv| {
            for first in (0..COUNT).step_by(AT_ONCE as usize) {
                let mut batch = Batch::new();
                (first..first + AT_ONCE)
                    .for_each(|n| batch.patch(TreeId::Metadata, &key(n), 8, b"12345678", false));
                kv.commit(batch).unwrap();
            }
        };
        b.iter_batched_ref(filled, patch, BatchSize::PerIteration);
    });
    group.bench_function("checkpoint", |b| {
        let dirty = || {
            let mut kv = empty();
            insert(&mut kv, key);
            kv
        };
        b.iter_batched_ref(dirty, |kv| kv.checkpoint().unwrap(), BatchSize::PerIteration);
    });
    group.bench_function("range delete and its checkpoint", |b| {
        let delete = |kv: &mut Kv| {
            let mut batch = Batch::new();
            batch.delete_range(TreeId::Metadata, &[0x20; 16], &[0xe0; 16]);
            kv.commit(batch).unwrap();
            kv.checkpoint().unwrap();
        };
        b.iter_batched_ref(filled, delete, BatchSize::PerIteration);
    });
    group.finish();
    let mut group = c.benchmark_group("blocks");
    group.sample_size(10).throughput(Throughput::Bytes(64 << 20));
    group.bench_function("late-bound writes", |b| {
        let block = bytes::Bytes::from(vec![3; 4096]);
        let write = |kv: &mut Kv| {
            for first in (0..16_384u64).step_by(512) {
                let mut batch = Batch::new();
                for number in first..first + 512 {
                    let key = data_key(b"12345678", number);
                    batch.insert_shared(TreeId::Data, &key, block.clone());
                }
                kv.commit(batch).unwrap();
            }
            kv.sync().unwrap();
        };
        b.iter_batched_ref(empty, write, BatchSize::PerIteration);
    });
    group.finish();
}

fn reads(c: &mut Criterion) {
    let kv = filled();
    let mut group = c.benchmark_group("read");
    let mut number = 0;
    group.bench_function("a key in memory", |b| {
        b.iter(|| {
            number = (number + 7919) % COUNT;
            kv.get(TreeId::Metadata, &key(number)).unwrap().unwrap()
        });
    });
    group.sample_size(10).throughput(Throughput::Elements(COUNT.into()));
    group.bench_function("all keys in order", |b| {
        b.iter(|| kv.range(TreeId::Metadata, b"", None).filter(|entry| entry.is_ok()).count());
    });
    group.finish();
}

fn updates(c: &mut Criterion) {
    let older = Update::patch(100, &[1; 40], true).after(&Update::trim(2000));
    c.bench_function("combine two patches", |b| {
        b.iter(|| Update::patch(120, &[2; 40], true).after(&older));
    });
    c.bench_function("apply a patch", |b| b.iter(|| older.apply(Some(&[9; 4096]))));
}

criterion_group!(benches, writes, reads, updates);
criterion_main!(benches);
