"""Section 5 of the paper: loading, prompting, fine-tuning, generation and its checks; embeddings."""
