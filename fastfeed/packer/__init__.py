"""From files to shards and back: scan, plan, write, verify, unpack."""
