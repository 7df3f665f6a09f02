package service

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Protocol returns a port's protocol. An empty one means TCP.
func Protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}

	return p
}

// Protocol numbers of IANA.
const (
	NumberTCP  = 6
	NumberUDP  = 17
	NumberSCTP = 132
)

// ProtocolNumber returns the number of a protocol that a Service can have.
func ProtocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return NumberUDP
	case corev1.ProtocolSCTP:
		return NumberSCTP
	}

	return NumberTCP
}

// ProtocolOf returns the protocol of a number that a Service can have: TCP, UDP or SCTP.
func ProtocolOf(number uint8) corev1.Protocol {
	switch number {
	case NumberUDP:
		return corev1.ProtocolUDP
	case NumberSCTP:
		return corev1.ProtocolSCTP
	}

	return corev1.ProtocolTCP
}

// ProtocolName returns the name of a protocol number: TCP, UDP or SCTP. For other protocols it is
// the number.
func ProtocolName(number uint8) string {
	if p := ProtocolOf(number); ProtocolNumber(p) == number {
		return string(p)
	}

	return strconv.Itoa(int(number))
}

// isKnownProtocol reports whether a Service can have the protocol.
func isKnownProtocol(p corev1.Protocol) bool {
	return p == corev1.ProtocolTCP || p == corev1.ProtocolUDP || p == corev1.ProtocolSCTP
}
