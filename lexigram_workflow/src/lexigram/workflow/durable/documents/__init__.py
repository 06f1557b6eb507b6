"""Documents, their artifacts and the runs that are started for them."""
