package k8swatch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNotice(t *testing.T) {
	want := Condition{Type: NoticeUpdateRefused, Status: StatusTrue, Reason: NoticeUpdateRefused, Message: "line one  line two"}
	if diff := cmp.Diff(want, Notice(NoticeUpdateRefused, "line one\r\nline two")); diff != "" {
		t.Error(diff)
	}
	if n := Notice("A", strings.Repeat("x", 2*MaxMessage)); len(n.Message) != MaxMessage {
		t.Errorf("a message of %d bytes", len(n.Message))
	}
}

// Each type is there once, sorted, with all messages in their order.
func TestMergeByType(t *testing.T) {
	got := MergeByType([]Condition{Notice("B", "1"), Notice("A", "2"), Notice("B", "3")})
	want := []Condition{Notice("A", "2"), Notice("B", "1; 3")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := MergeByType(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
