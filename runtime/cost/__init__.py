"""What bursts cost: entries of the ledger, and the budgets they are held against."""
