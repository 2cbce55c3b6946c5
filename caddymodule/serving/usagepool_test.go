package serving

import (
	"errors"
	"testing"
)

func TestPool(t *testing.T) {
	var p usagePool[*int]
	made := 0
	make := func() (*int, error) { made++; return new(int), nil }
	first, _ := p.acquire("a", make)
	second, _ := p.acquire("a", make)
	other, _ := p.acquire("b", make)
	if first != second || first == other || made != 2 || p.size() != 2 {
		t.Errorf("made %d, in use %d", made, p.size())
	}
	if p.release("a") || !p.release("a") || p.release("a") {
		t.Error("the last user is not the last")
	}
	if again, _ := p.acquire("a", make); again == first {
		t.Error("a value that ended is in use")
	}
	failed := errors.New("no")
	if _, err := p.acquire("c", func() (*int, error) { return nil, failed }); !errors.Is(err, failed) || p.size() != 2 {
		t.Errorf("%v, in use %d", err, p.size())
	}
}
