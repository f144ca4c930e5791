"""What torch's operations do: one table, generated from torch and completed by hand."""
