# The dozen commands of this project; `just` lists them. CONTRIBUTING.md says more.

# List the commands.
default:
    @just --list

# Format, lint and document, as CI does.
lint:
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --quiet

# Check the fuzz targets, which are outside of the workspace.
check-outside:
    cargo check --quiet --all-targets --manifest-path fuzz/Cargo.toml

# All tests, or those of a name.
test name='':
    cargo test --locked --workspace -- {{name}}

# Tests across crates.
all name='':
    cargo test -p betr-tests --test all -- {{name}}

# Tests of the command line.
cli name='':
    cargo test -p betr --test cli -- {{name}}

# Tests of the mount, as root.
mount name='':
    cargo test -p betr --test mount -- {{name}}

# Rules broken on purpose, each of which the crash explorer must notice.
mutations:
    cargo test -p betr-tests --test mutations

# Cut the power after every write of all workloads.
crash states='1900':
    cargo run --locked --release --quiet -- dev crash --states {{states}}

# Accept new snapshots, DAMAGE.md, the list of rules, and the output of examples.
bless name='':
    INSTA_UPDATE=always BETR_BLESS=1 cargo test --no-fail-fast -p betr-tests --test all -- {{name}}
    INSTA_UPDATE=always BETR_BLESS=1 cargo test --no-fail-fast -p betr --test cli -- {{name}}

# Licenses, advisories and sources of dependencies.
deny:
    cargo deny check

# Everything that must hold before a change lands.
ci:
    .ci/run
