"""The versions of a history's tables, one file each."""
