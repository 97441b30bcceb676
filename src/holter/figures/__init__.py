"""What the views show of a record, as plain data: computed once, here, so that every view says the same."""
