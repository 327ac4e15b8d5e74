"""Section 4 of the paper: eight computed metrics and the judge; float64 arrays of shape (n_speeches,), NaN where undefined."""
