package nb

// Isolating returns the number of groups that do not exist and for which existing ports wait.
func (d *DB) Isolating() int { return int(d.isolations.count.Load()) }
