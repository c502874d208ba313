"""From shards to samples: decoding and datasets."""
