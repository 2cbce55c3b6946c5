package secretstorage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Names on the objects.
const (
	// SecretType is the type of the Secrets.
	SecretType corev1.SecretType = "proxyauth.weebo.si.rs/storage"
	// ManagedBy is the value of the label app.kubernetes.io/managed-by. Front-proxy
	// Secrets have another value.
	ManagedBy = "proxyauthk8s-storage"

	managedByLabel     = "app.kubernetes.io/managed-by"
	directoryLabel     = "storage.proxyauth.weebo.si.rs/dir-"
	keyAnnotation      = "storage.proxyauth.weebo.si.rs/key"
	modifiedAnnotation = "storage.proxyauth.weebo.si.rs/modified"
	lockAnnotation     = "storage.proxyauth.weebo.si.rs/lock"
	valueKey           = "value"
)

// maxKey bounds a key, in bytes, and with it the number of labels. certmagic's
// keys hold one or two domain names and a URL.
const maxKey = 1024

// maxReadable bounds the readable part of an object's name, in bytes.
const maxReadable = 60

var (
	errEmptyKey = errors.New("the key is empty")
	errLongKey  = fmt.Errorf("the key is longer than %d bytes", maxKey)
	errKeyBytes = errors.New("the key is not UTF-8")
)

// cleanDirectory normalizes a key as a path: keys have the semantics of a file
// system. The root is empty.
func cleanDirectory(key string) (string, error) {
	if len(key) > maxKey {
		return "", errLongKey
	}
	// An annotation holds no other bytes.
	if !utf8.ValidString(key) {
		return "", errKeyBytes
	}
	return strings.TrimPrefix(path.Clean("/"+key), "/"), nil
}

// cleanKey is cleanDirectory for a key, which cannot be the root.
func cleanKey(key string) (string, error) {
	key, err := cleanDirectory(key)
	if err == nil && key == "" {
		err = errEmptyKey
	}
	return key, err
}

// objectName names the object of a key. The digest alone makes it unique.
func objectName(prefix, key string) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, path.Base(key))
	readable = strings.Trim(readable[:min(len(readable), maxReadable)], "-")
	if readable != "" {
		readable += "-"
	}
	return prefix + readable + digest(key)
}

func secretName(key string) string { return objectName("caddy-", key) }

func leaseName(lock string) string { return objectName("caddy-lock-", lock) }

// digest is 128 bits of SHA-256, which fit a label.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// secretLabels returns a label for each directory above a key.
func secretLabels(key string) map[string]string {
	all := map[string]string{managedByLabel: ManagedBy}
	for n, char := range key {
		if char == '/' {
			name, value := directorySelector(key[:n])
			all[name] = value
		}
	}
	return all
}

func directorySelector(directory string) (label, value string) {
	return fmt.Sprint(directoryLabel, strings.Count(directory, "/")+1), digest(directory)
}

// below selects the Secrets of all keys below a directory.
func below(directory string) string {
	set := labels.Set{managedByLabel: ManagedBy}
	if directory != "" {
		label, value := directorySelector(directory)
		set[label] = value
	}
	return set.String()
}

// isBelow reports whether a key is below a directory.
func isBelow(key, directory string) bool {
	return directory == "" || strings.HasPrefix(key, directory+"/")
}
