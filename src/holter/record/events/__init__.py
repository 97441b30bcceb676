"""The typed schema of the record: one class for each kind of line, and for each row and reading inside one."""
