// Package digest hashes a sequence of fields so that no two different sequences
// hash alike.
package digest
