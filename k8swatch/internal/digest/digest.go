package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digest hashes a sequence of fields. Each field is preceded by its length, so
// that no two different sequences give the same input to the hash.
type Digest struct{ h hash.Hash }

// New starts a digest; purpose keeps the digests of different things apart.
func New(purpose string) Digest {
	d := Digest{h: sha256.New()}
	d.Text(purpose)
	return d
}

// Bytes adds a field.
func (d Digest) Bytes(b []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(b)))
	d.h.Write(n[:])
	d.h.Write(b)
}

// Text adds a field.
func (d Digest) Text(s string) { d.Bytes([]byte(s)) }

// Bool adds a field.
func (d Digest) Bool(b bool) {
	if b {
		d.Bytes([]byte{1})
		return
	}
	d.Bytes([]byte{0})
}

// List adds how many fields follow, then the fields.
func (d Digest) List(fields [][]byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(fields)))
	d.Bytes(n[:])
	for _, f := range fields {
		d.Bytes(f)
	}
}

// Sum is the digest in hexadecimal.
func (d Digest) Sum() string { return hex.EncodeToString(d.h.Sum(nil)) }
