package frame

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Writer writes Ethernet frames as pcapng, each with a comment. It writes each frame with a single
// Write to the underlying writer, so a reader of a pipe gets it at once. It is not safe for
// concurrent use.
//
// The library writes the Section Header Block and the Interface Description Block with which the
// file starts. It cannot comment a frame, so Writer makes the blocks of frames itself
// (draft-ietf-opsawg-pcapng). All numbers are little-endian, as in the library's blocks.
type Writer struct{ w io.Writer }

// Types of blocks and options.
const (
	enhancedPacket = 6 // Enhanced Packet Block (4.3)
	optionEnd      = 0 // opt_endofopt (3.5)
	optionComment  = 1 // opt_comment (3.5)
)

// NewWriter starts a file with frames of up to snap bytes from one interface, device.
func NewWriter(w io.Writer, device string, snap int) (*Writer, error) {
	link := pcapgo.NgInterface{Name: device, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(snap)}

	header, err := pcapgo.NewNgWriterInterface(w, link, pcapgo.NgWriterOptions{})
	if err == nil {
		err = header.Flush()
	}

	if err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}

	return &Writer{w}, nil
}

// Write adds a frame, which may be truncated, as an Enhanced Packet Block. length is its full
// length in bytes.
func (w *Writer) Write(at time.Time, frame []byte, length int, comment string) error {
	le, ns := binary.LittleEndian, uint64(at.UnixNano())

	body := make([]byte, 0, 64+len(frame)+len(comment))
	body = le.AppendUint32(body, 0)                  // Interface ID
	body = le.AppendUint32(body, uint32(ns>>32))     // Timestamp (Upper)
	body = le.AppendUint32(body, uint32(ns))         // Timestamp (Lower), in the interface's unit: ns
	body = le.AppendUint32(body, uint32(len(frame))) // Captured Packet Length
	body = le.AppendUint32(body, uint32(length))     // Original Packet Length
	body = padded(append(body, frame...))            // Packet Data
	body = option(body, optionComment, []byte(comment))
	body = option(body, optionEnd, nil)

	if _, err := w.w.Write(block(enhancedPacket, body)); err != nil {
		return fmt.Errorf("write captured frame: %w", err)
	}

	return nil
}

// block returns a block (3.1): type, total length, body, and the total length again.
func block(kind uint32, body []byte) []byte {
	const overhead = 3 * 4 // bytes of the fields around the body

	le, length := binary.LittleEndian, uint32(overhead+len(body))
	b := le.AppendUint32(nil, kind)
	b = le.AppendUint32(b, length)
	b = append(b, body...)

	return le.AppendUint32(b, length)
}

// option appends an option to the body of a block (3.5): code, length, and the padded value.
func option(b []byte, kind uint16, value []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, kind)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(value)))

	return padded(append(b, value...))
}

// padded pads b to a multiple of four bytes.
func padded(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}

	return b
}
