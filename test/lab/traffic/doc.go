// Package traffic contains the lab's servers and clients. They are small, so that they report
// exactly what was sent, what was received, and the gaps in between.
//
//	serve  -tcp :80,:22 -udp :80 -name X   answers with its name and the client's address
//	http   -tcp :80 -udp :53 -name X       answers HTTP requests and datagrams with its name and the client's address
//	reach  tcp/ADDR udp/ADDR ...           asks all at once; prints each with its answer, or "-"
//	tcp    ADDR [-sport N] [-n N]          requests, one connection each; prints the answers
//	udp    ADDR [-sport N]                 the same over UDP
//	sctp   ADDR [-sport N] [-n N]          the same over SCTP, of one address each side; serve has -sctp ADDR:PORT for it
//	hold   ADDR [-udp] [-duration D]       one connection, a number every 100 ms; prints a JSON line of losses and gaps
//	stream ADDR [-duration D]              bulk TCP; prints a JSON line of bytes and the longest stall
//	sweep  ADDR -sport 22 -ports 1-1024    connects from one source port to many; prints a JSON line of outcomes
//	advertise PREFIX                       a router advertisement from eth0: hosts may make themselves addresses of it
//
// Requests are lines. "who" is answered by "<name> <client>", "seq <n>" by <n>;
// after "sink" the server swallows everything and at the end answers with a
// JSON line. A UDP datagram is one line, and has no sink. Addresses are
// literal.
package traffic
