package frame

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Writer writes Ethernet frames as pcapng, each with a comment (draft-ietf-opsawg-pcapng). It
// writes each frame with a single Write to the underlying writer.
type Writer struct{ w io.Writer }

// Blocks and options of pcapng.
const (
	sectionHeader     = 0x0a0d0d0a
	interfaceBlock    = 1
	enhancedPacket    = 6
	optionEnd         = 0
	optionComment     = 1
	optionName        = 2
	optionResolution  = 9
	byteOrderMagic    = 0x1a2b3c4d
	linkTypeEthernet  = 1
	nanoseconds       = 9
	sectionOfAnyBytes = ^uint64(0)
)

// NewWriter starts a file with frames of up to snap bytes.
func NewWriter(w io.Writer, device string, snap int) (*Writer, error) {
	ne := binary.NativeEndian
	section := ne.AppendUint32(nil, byteOrderMagic)
	section = ne.AppendUint16(section, 1) // version 1.0
	section = ne.AppendUint16(section, 0)
	section = ne.AppendUint64(section, sectionOfAnyBytes)
	link := ne.AppendUint16(nil, linkTypeEthernet)
	link = ne.AppendUint16(link, 0)
	link = ne.AppendUint32(link, uint32(snap))
	link = option(link, optionName, []byte(device))
	link = option(link, optionResolution, []byte{nanoseconds})
	link = option(link, optionEnd, nil)

	if _, err := w.Write(append(block(sectionHeader, section), block(interfaceBlock, link)...)); err != nil {
		return nil, fmt.Errorf("start capture: %w", err)
	}

	return &Writer{w}, nil
}

// Write adds a frame, which may be truncated. length is its full length in bytes.
func (w *Writer) Write(at time.Time, frame []byte, length int, comment string) error {
	ne, ns := binary.NativeEndian, uint64(at.UnixNano())
	b := make([]byte, 4, 64+len(frame)+len(comment)) // interface 0
	b = ne.AppendUint32(b, uint32(ns>>32))
	b = ne.AppendUint32(b, uint32(ns))
	b = ne.AppendUint32(b, uint32(len(frame)))
	b = ne.AppendUint32(b, uint32(length))
	b = padded(append(b, frame...))
	b = option(b, optionComment, []byte(comment))
	b = option(b, optionEnd, nil)

	if _, err := w.w.Write(block(enhancedPacket, b)); err != nil {
		return fmt.Errorf("write captured frame: %w", err)
	}

	return nil
}

func block(kind uint32, body []byte) []byte {
	ne, length := binary.NativeEndian, uint32(12+len(body))
	b := ne.AppendUint32(nil, kind)
	b = ne.AppendUint32(b, length)
	b = append(b, body...)

	return ne.AppendUint32(b, length)
}

func option(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(value)))

	return padded(append(b, value...))
}

// padded pads b to a multiple of four bytes.
func padded(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}

	return b
}
