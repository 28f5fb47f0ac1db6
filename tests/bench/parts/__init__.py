"""What tests/bench/router.py measures, a module per place where it is measured."""
