//! The time to draw a frame in a pane of a million rows: `cargo bench -p betr-bench --bench scroll`. The budget of a frame is 16
//! ms.

use betr_tui_inspect::measure::Scroll;
use criterion::{Criterion, criterion_group, criterion_main};

const ROWS: u64 = 1_000_000;

fn scroll(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("scroll");
    let panes = [
        ("buffer", Scroll::buffer(ROWS)),
        ("directory", Scroll::directory(ROWS)),
        ("log", Scroll::log(ROWS)),
    ];
    for (name, mut pane) in panes {
        group.bench_function(format!("{name}, a page"), |bench| bench.iter(|| pane.page()));
        group.bench_function(format!("{name}, to both ends"), |bench| bench.iter(|| pane.ends()));
    }
    group.finish();
}

criterion_group!(benches, scroll);
criterion_main!(benches);
