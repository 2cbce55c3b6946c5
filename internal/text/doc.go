// Package text makes foreign texts fit for a message.
//
// The author of an object, an apiserver or an identity provider chooses parts of
// what statuses, logs, answers and terminals show. Such a text must not forge a
// second line, steer a terminal or fill the place of everything else.
package text
