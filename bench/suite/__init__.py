"""The benchmark suite: `main` runs it, `systems` are compared, `experiments` are the work, `report` writes it down."""
