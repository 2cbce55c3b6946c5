package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
)

// fatal is an error that waiting does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll asks until ready returns nil, a server of the node ends or the context
// does.
func (n *Node) poll(ctx context.Context, what string, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if final := (fatal{}); errors.As(err, &final) {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if err := n.Ended(); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w)", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Ended is an error when a server of the node has ended.
func (n *Node) Ended() error {
	for _, s := range n.servers {
		if s.Exited() {
			return fmt.Errorf("%s ended with code %d", s.name, s.ExitCode())
		}
	}
	return nil
}

var errNotReady = errors.New("not ready")

// waitReady waits until pods can be made, scheduled and started, and reach the
// apiserver by its Service.
func (n *Node) waitReady(ctx context.Context) error {
	core, err := coreclient.NewForConfig(n.API.AdminConfig())
	if err != nil {
		return err
	}
	if err := n.poll(ctx, "the node", func(ctx context.Context) error {
		node, err := core.Nodes().Get(ctx, Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return schedulable(node)
	}); err != nil {
		return err
	}
	if err := n.poll(ctx, "the default ServiceAccount", func(ctx context.Context) error {
		if _, err := core.ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := core.ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	client := n.API.HTTPClient(nil)
	defer client.CloseIdleConnections()
	return n.poll(ctx, "the Service kubernetes", func(ctx context.Context) error {
		service, err := core.Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+service.Spec.ClusterIP+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		return nil
	})
}

func schedulable(node *corev1.Node) error {
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("%w: taints %v", errNotReady, node.Spec.Taints)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%w: %s", errNotReady, c.Message)
		}
	}
	return errNotReady
}

// lastLines of all logs, for error messages.
func (n *Node) lastLines() string {
	var b strings.Builder
	for _, s := range n.servers {
		fmt.Fprintf(&b, "last lines of %s:\n%s\n", s.name, s.LogTail(15))
	}
	return b.String()
}
