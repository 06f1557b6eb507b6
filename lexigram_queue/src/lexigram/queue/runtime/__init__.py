"""What is the same on every broker: publishing, receiving, settling and leases."""
