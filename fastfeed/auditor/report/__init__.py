"""What an audit found, as one page for a browser; and what of it is new since an earlier audit."""
