// Package jsonlines reads files of JSON lines that another process appends to,
// as logs are. A test asks for all lines many times a second: each line is read
// and parsed once.
package jsonlines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// File is such a file, each line a T. Its methods may be called at the same time.
type File[T any] struct {
	path string

	mu     sync.Mutex
	offset int64 // of the first byte that is not part of all
	all    []T
}

// Open returns the file at path, which need not be there yet.
func Open[T any](path string) *File[T] { return &File[T]{path: path} }

// All is every whole line so far, oldest first. The slice is the caller's, what
// the elements refer to is not. A file that is shorter than before is a new one.
func (f *File[T]) All() ([]T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path, err)
	}
	return slices.Clone(f.all), nil
}

func (f *File[T]) read() error {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		f.offset, f.all = 0, nil
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < f.offset {
		f.offset, f.all = 0, nil
	}
	added, err := io.ReadAll(io.NewSectionReader(file, f.offset, info.Size()-f.offset))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(added) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // still being written
		}
		var element T
		if err := json.Unmarshal(line, &element); err != nil {
			return fmt.Errorf("%w: %q", err, line)
		}
		f.all = append(f.all, element)
		f.offset += int64(len(line))
	}
	return nil
}
