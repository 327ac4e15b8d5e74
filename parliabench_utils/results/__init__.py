"""Section 6 of the paper: statistics, tables, figures, the report, and the audit of the published tables."""
