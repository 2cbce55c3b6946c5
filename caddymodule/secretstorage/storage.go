package secretstorage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// MaxValue is the size of the largest value, in bytes: what a Secret can hold.
const MaxValue = corev1.MaxSecretSize

const (
	fieldManager = "proxyauth-storage"
	pageSize     = 500
	// requestTimeout bounds each request to an API that does not answer.
	requestTimeout = 10 * time.Second
)

// Target says where the Secrets and Leases are.
type Target struct {
	Config    *rest.Config
	Namespace string
}

// Options shape a Storage.
type Options struct {
	// Open gives the target. It is called at the first use, and again at the next
	// one when it failed.
	Open func() (Target, error)
	// Logger may be nil.
	Logger *zap.Logger
	// LeaseDuration is how long a lock outlives a holder that has gone, in
	// whole seconds. Default: 15s.
	LeaseDuration time.Duration
	// PollInterval is how often a lock that is held is looked at. Default: 1s.
	PollInterval time.Duration
}

// Storage implements certmagic.Storage. It is safe for concurrent use.
type Storage struct {
	*locker
	open func() (Target, error)

	mu      sync.Mutex
	clients *clients
}

// clients are the API clients for one target.
type clients struct {
	namespace string
	secrets   coreclient.SecretInterface
	// metadata reads Secrets without their data.
	metadata metadata.ResourceInterface
	leases   coordinationclient.LeaseInterface
}

// New returns a Storage. It does no I/O.
func New(o Options) *Storage {
	s := &Storage{open: o.Open}
	s.locker = newLocker(o, func() (leaseClient, error) {
		c, err := s.connect()
		if err != nil {
			return nil, err
		}
		return c.leases, nil
	})
	return s
}

func (s *Storage) connect() (*clients, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients != nil {
		return s.clients, nil
	}
	target, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errOpening, err)
	}
	if s.clients, err = newClients(target); err != nil {
		return nil, fmt.Errorf("%w: %w", errOpening, err)
	}
	return s.clients, nil
}

func newClients(target Target) (*clients, error) {
	config := rest.CopyConfig(target.Config)
	config.Timeout = requestTimeout
	if config.QPS == 0 {
		config.QPS, config.Burst = 50, 100
	}
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	coordination, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &clients{
		namespace: target.Namespace,
		secrets:   core.Secrets(target.Namespace),
		metadata:  meta.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(target.Namespace),
		leases:    coordination.Leases(target.Namespace),
	}, nil
}

// String names the storage in logs.
func (s *Storage) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == nil {
		return "Secrets"
	}
	return "Secrets in namespace " + s.clients.namespace
}

// do calls f with the clients, retries it, and says in the error what failed.
func (s *Storage) do(ctx context.Context, patience time.Duration, verb, key string, f func(*clients) error) error {
	err := retry(ctx, patience, func() error {
		c, err := s.connect()
		if err != nil {
			return err
		}
		return f(c)
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, key, err)
	}
	return nil
}

// Store puts a value at a key. Of several concurrent calls the last one wins.
func (s *Storage) Store(ctx context.Context, key string, value []byte) error {
	key, err := cleanKey(key)
	if err != nil {
		return fmt.Errorf("storing: %w", err)
	}
	if len(value) > MaxValue {
		return fmt.Errorf("storing %q: its %d bytes are more than the %d that a Secret can hold", key, len(value), MaxValue)
	}
	if value == nil {
		value = []byte{} // null would remove it
	}
	return s.do(ctx, writePatience, "storing", key, func(c *clients) error {
		secret := applycorev1.Secret(secretName(key), c.namespace).
			WithType(SecretType).
			WithLabels(secretLabels(key)).
			WithAnnotations(map[string]string{
				keyAnnotation:      key,
				modifiedAnnotation: time.Now().UTC().Format(time.RFC3339Nano),
			}).
			WithData(map[string][]byte{valueKey: value})
		_, err := c.secrets.Apply(ctx, secret, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	})
}

// Load returns the value at a key, or an error that is fs.ErrNotExist.
func (s *Storage) Load(ctx context.Context, key string) ([]byte, error) {
	key, err := cleanKey(key)
	if err != nil {
		return nil, fmt.Errorf("loading: %w", err)
	}
	var value []byte
	err = s.do(ctx, readPatience, "loading", key, func(c *clients) error {
		secret, err := c.get(ctx, key)
		if err == nil {
			value = secret.Data[valueKey]
		}
		return err
	})
	return value, err
}

// get reads the Secret of a key.
func (c *clients) get(ctx context.Context, key string) (*corev1.Secret, error) {
	secret, err := c.secrets.Get(ctx, secretName(key), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	if _, ok := secret.Data[valueKey]; !ok || secret.Type != SecretType || secret.Annotations[keyAnnotation] != key {
		return nil, fmt.Errorf("the Secret %s %w", secret.Name, errForeign)
	}
	return secret, nil
}

// Delete removes a key, and everything below it. A key that does not exist is
// no error.
func (s *Storage) Delete(ctx context.Context, key string) error {
	key, err := cleanKey(key)
	if err != nil {
		return fmt.Errorf("deleting: %w", err)
	}
	return s.do(ctx, writePatience, "deleting", key, func(c *clients) error {
		names := []string{secretName(key)}
		err := c.list(ctx, key, func(secret *metav1.PartialObjectMetadata) {
			names = append(names, secret.Name)
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := c.secrets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	})
}

// Exists reports whether a key exists, as a file or as a directory. It is false
// when the API cannot be asked.
func (s *Storage) Exists(ctx context.Context, key string) bool {
	_, err := s.Stat(ctx, key)
	return err == nil
}

// Stat describes a key, or returns an error that is fs.ErrNotExist. A directory
// has neither size nor time.
func (s *Storage) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	key, err := cleanDirectory(key)
	if err != nil {
		return certmagic.KeyInfo{}, fmt.Errorf("looking at a key: %w", err)
	}
	info := certmagic.KeyInfo{Key: key}
	if key == "" {
		return info, nil
	}
	err = s.do(ctx, readPatience, "looking at", key, func(c *clients) error {
		secret, err := c.get(ctx, key)
		if err == nil {
			info.IsTerminal = true
			info.Size = int64(len(secret.Data[valueKey]))
			info.Modified = modified(secret)
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = c.exists(ctx, key)
		}
		return err
	})
	if err != nil {
		return certmagic.KeyInfo{}, err
	}
	return info, nil
}

func modified(secret *corev1.Secret) time.Time {
	at, err := time.Parse(time.RFC3339Nano, secret.Annotations[modifiedAnnotation])
	if err != nil {
		return secret.CreationTimestamp.Time
	}
	return at
}

// List returns the keys below a directory, sorted: those directly below it, or
// all with recursive. Directories are among them. The error is fs.ErrNotExist
// when there is neither such a directory nor such a file.
func (s *Storage) List(ctx context.Context, directory string, recursive bool) ([]string, error) {
	directory, err := cleanDirectory(directory)
	if err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	var found map[string]bool
	err = s.do(ctx, readPatience, "listing", directory, func(c *clients) error {
		found = map[string]bool{}
		err := c.list(ctx, directory, func(secret *metav1.PartialObjectMetadata) {
			addKeys(found, secret.Annotations[keyAnnotation], directory, recursive)
		})
		if err != nil || len(found) > 0 || directory == "" {
			return err
		}
		// A file holds nothing, but it exists.
		_, err = c.get(ctx, directory)
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// addKeys adds a key below directory, and the directories between the two.
func addKeys(found map[string]bool, key, directory string, recursive bool) {
	start := 0
	if directory != "" {
		start = len(directory) + 1
	}
	for n := start; n < len(key); n++ {
		if key[n] == '/' {
			found[key[:n]] = true
			if !recursive {
				return
			}
		}
	}
	found[key] = true
}

// exists returns fs.ErrNotExist when no key is below a directory.
func (c *clients) exists(ctx context.Context, directory string) error {
	list, err := c.metadata.List(ctx, metav1.ListOptions{LabelSelector: below(directory), Limit: 1})
	if err == nil && len(list.Items) == 0 {
		err = fs.ErrNotExist
	}
	return err
}

// list calls f for each Secret below a directory.
func (c *clients) list(ctx context.Context, directory string, f func(*metav1.PartialObjectMetadata)) error {
	options := metav1.ListOptions{LabelSelector: below(directory), Limit: pageSize}
	for {
		list, err := c.metadata.List(ctx, options)
		if err != nil {
			return err
		}
		for i := range list.Items {
			if secret := &list.Items[i]; isBelow(secret.Annotations[keyAnnotation], directory) {
				f(secret)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// Interface guards.
var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
	_ fmt.Stringer               = (*Storage)(nil)
)
