package plan

// BalancersWithin plans a Service's load balancers as if they were bounded to so many bytes. It
// returns the rows, the bytes that remain, and what is refused.
func BalancersWithin(c *Cluster, key Key, text int) (rows []Row, left int, refused error) {
	s := c.newService(key)
	s.remainingBytes = text
	rows = sortRows(s.balancers())

	return rows, s.remainingBytes, newUnserved(s.shortfall...)
}
