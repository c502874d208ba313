"""From encoded images to batches: only what a transform needs is decoded, and it is put where the batch lies."""
