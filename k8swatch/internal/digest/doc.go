// Package digest hashes a sequence of values so that no two different sequences
// hash alike.
package digest
