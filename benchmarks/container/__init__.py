"""The container beside its peers and beside hand-written wiring."""
