package frame

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Writer writes Ethernet frames as pcapng, each with a comment (draft-ietf-opsawg-pcapng). It
// writes each frame with a single Write to the underlying writer. The library starts the file, but
// cannot comment a frame.
type Writer struct{ w io.Writer }

// Blocks and options of pcapng.
const (
	enhancedPacket = 6
	optionEnd      = 0
	optionComment  = 1
)

// NewWriter starts a file with frames of up to snap bytes.
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

// Write adds a frame, which may be truncated. length is its full length in bytes.
func (w *Writer) Write(at time.Time, frame []byte, length int, comment string) error {
	le, ns := binary.LittleEndian, uint64(at.UnixNano())
	b := make([]byte, 4, 64+len(frame)+len(comment)) // the first field is the interface's number, 0
	b = le.AppendUint32(b, uint32(ns>>32))
	b = le.AppendUint32(b, uint32(ns))
	b = le.AppendUint32(b, uint32(len(frame)))
	b = le.AppendUint32(b, uint32(length))
	b = padded(append(b, frame...))
	b = option(b, optionComment, []byte(comment))
	b = option(b, optionEnd, nil)

	if _, err := w.w.Write(block(enhancedPacket, b)); err != nil {
		return fmt.Errorf("write captured frame: %w", err)
	}

	return nil
}

// block returns a block with its length before and after the body.
func block(kind uint32, body []byte) []byte {
	le, length := binary.LittleEndian, uint32(12+len(body))
	b := le.AppendUint32(nil, kind)
	b = le.AppendUint32(b, length)
	b = append(b, body...)

	return le.AppendUint32(b, length)
}

// option appends an option to the body of a block.
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
