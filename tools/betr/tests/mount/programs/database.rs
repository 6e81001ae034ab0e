//! sqlite3(1): transactions with an fsync each, locks, and shared memory with a write-ahead log.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::fixture::{Mounted, Random, betr_only, clone, program, run, said};

const TRANSACTIONS: usize = 1500;

/// Transactions that insert, update and delete, some of which are rolled back.
fn script() -> String {
    let mut random = Random::new(22, 0);
    let mut sql = String::from(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, key TEXT, value BLOB);\nCREATE INDEX i ON t(key);\n",
    );
    for number in 0..TRANSACTIONS {
        sql += "BEGIN;\n";
        for _ in 0..4 {
            let (id, seed) = (random.below(5000), random.next());
            let line = match random.below(5) {
                0 => format!("DELETE FROM t WHERE id = {id}"),
                1 => format!(
                    "UPDATE t SET key = 'changed {seed}' WHERE id BETWEEN {id} AND {id} + 3"
                ),
                _ => {
                    let blob = format!("{seed:016x}").repeat(1 + random.below(60));
                    format!("INSERT OR REPLACE INTO t VALUES({id}, 'key {seed}', x'{blob}')")
                }
            };
            writeln!(sql, "{line};").unwrap();
        }
        sql += if number % 10 == 9 { "ROLLBACK;\n" } else { "COMMIT;\n" };
    }
    sql
}

/// Runs commands on a database, and returns their output.
fn sqlite(dir: &Path, database: &str, commands: &[&str]) -> String {
    let commands = commands.iter().flat_map(|command| ["-cmd", command]);
    said("sqlite3", dir, commands.chain([database, ".quit"]))
}

#[test]
fn a_database_is_what_its_transactions_make_it() {
    let Some(mut mount) = program("sqlite3").and_then(|_| Mounted::new("")) else { return };
    let read = format!(".read {}", mount.beside("script.sql").display());
    fs::write(mount.beside("script.sql"), script()).unwrap();
    let expected = sqlite(Path::new("/"), ":memory:", &[&read, ".dump"]);
    assert!(expected.len() > 100_000);
    for mode in ["DELETE", "WAL"] {
        let (database, pragma) = (format!("{mode}.db"), format!("PRAGMA journal_mode = {mode}"));
        sqlite(mount.point(), &database, &[&pragma, "PRAGMA synchronous = FULL", &read]);
        let check = |mount: &Mounted| {
            let said = sqlite(mount.point(), &database, &["PRAGMA integrity_check"]);
            assert_eq!(said, "ok\n", "{mode}");
            assert!(sqlite(mount.point(), &database, &[".dump"]) == expected, "{mode}");
        };
        check(&mount);
        mount.settle();
        check(&mount);
        // VACUUM rewrites everything, and the file becomes shorter.
        sqlite(mount.point(), &database, &["DELETE FROM t WHERE id % 3 = 0", "VACUUM"]);
        assert_eq!(sqlite(mount.point(), &database, &["PRAGMA integrity_check"]), "ok\n");
        mount.settle();
    }
}

#[test]
fn processes_share_a_database() {
    const EACH: usize = 150;
    let Some(mut mount) = program("sqlite3").and_then(|_| Mounted::new("")) else { return };
    fs::write(
        mount.beside("count.sql"),
        "BEGIN IMMEDIATE; UPDATE t SET n = n + 1; COMMIT;\n".repeat(EACH),
    )
    .unwrap();
    for mode in ["DELETE", "WAL"] {
        let database = mount.at(&format!("{mode}.db"));
        let pragma = format!("PRAGMA journal_mode = {mode}");
        let table = "CREATE TABLE t(n INTEGER); INSERT INTO t VALUES(0)";
        sqlite(mount.point(), database.to_str().unwrap(), &[&pragma, table]);
        let line = format!(
            "for i in 1 2 3; do sqlite3 -bail -cmd '.timeout 60000' {0} < {1} & pids=\"$pids $!\"; done\n\
             for pid in $pids; do wait $pid || exit 1; done",
            database.display(),
            mount.beside("count.sql").display()
        );
        run("sh", ["-c", &line]);
        let count = sqlite(mount.point(), database.to_str().unwrap(), &["SELECT n FROM t"]);
        assert_eq!(count.trim(), (3 * EACH).to_string(), "{mode}");
        mount.settle();
    }
}

/// A clone of a database that is written to holds a state that it was in, later ones later states.
#[test]
fn a_database_is_cloned_while_it_is_in_use() {
    const ROWS: usize = 600;
    const CLONES: usize = 40;
    if !betr_only() || program("sqlite3").is_none() {
        return;
    }
    let Some(mut mount) = Mounted::new("") else { return };
    let insert = "INSERT INTO t(value) SELECT hex(randomblob(400));\n".repeat(ROWS);
    fs::write(mount.beside("insert.sql"), insert).unwrap();
    for mode in ["DELETE", "WAL"] {
        let directory = mount.at(mode);
        fs::create_dir(&directory).unwrap();
        let pragma = format!("PRAGMA journal_mode = {mode}");
        let table = "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT)";
        sqlite(&directory, "data.db", &[&pragma, table]);
        let input = fs::File::open(mount.beside("insert.sql")).unwrap();
        let mut writer = std::process::Command::new("sqlite3")
            .args(["-bail", "data.db"])
            .current_dir(&directory)
            .stdin(input)
            .spawn()
            .unwrap();
        let mut clones = 0;
        while clones < CLONES && writer.try_wait().unwrap().is_none() {
            clone(mount.point(), &format!("/{mode}"), &format!("/{mode}-{clones}"), 0);
            clones += 1;
        }
        assert!(writer.wait().unwrap().success());
        let mut before = 0;
        for number in 0..clones {
            let dir = mount.at(&format!("{mode}-{number}"));
            assert_eq!(sqlite(&dir, "data.db", &["PRAGMA integrity_check"]), "ok\n", "{number}");
            let said = sqlite(&dir, "data.db", &["SELECT count(*), ifnull(max(id), 0) FROM t"]);
            let (count, last) = said.trim().split_once('|').unwrap();
            let rows: usize = count.parse().unwrap();
            assert_eq!(count, last, "{mode}, clone {number}");
            assert!((before..=ROWS).contains(&rows), "{mode}, clone {number}: {rows} of {before}");
            before = rows;
        }
        println!("{mode}: {clones} clones");
        assert!(clones > 3, "{mode}: only {clones} clones");
        assert_eq!(
            sqlite(&directory, "data.db", &["SELECT count(*) FROM t"]).trim(),
            ROWS.to_string()
        );
        mount.settle();
    }
}
