package caddymodule

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
)

// option is one row of a table of options: how one option is read from the
// Caddyfile, what stands in for it when it is absent, and how it is checked.
// JSON needs no row: the field of the module has its tag.
type option struct {
	// name is the option's name, in the Caddyfile and in JSON.
	name  string
	value value
	// check refuses values that are wrong. It may be nil.
	check check
	// variable is the environment variable that is read when the option is
	// absent, and fallback is the default, as a Caddyfile would have it.
	variable, fallback string
	// values says in the reference what the option can be, and otherwise what holds
	// when it is absent, if that is not the fallback.
	values, otherwise string
	// block is set instead of value for an option that is a block { }.
	block *block
	// planned marks an option of a later version, which this one refuses.
	planned bool
}

// value is where an option's value comes from and goes to.
type value struct {
	// given returns what the configuration has, nothing when it is absent.
	given func() []string
	// set stores the arguments of the Caddyfile, an environment variable or a
	// default in the module's field.
	set func(args []string) error
	// use converts the module's field to what the program works with.
	use func() error
}

// check judges the values of an option. The name is the one to blame: that of
// the option or of its environment variable.
type check func(name string, values []string) error

// block is the table of an option that is a block of options.
type block struct {
	// open makes an empty block and returns its table.
	open func() []option
	// table returns the table of the block that is given, if one is.
	table func() []option
}

// unmarshalBlock reads a directive or module that has a name, no arguments, and
// a block with the options of a table.
func unmarshalBlock(d *caddyfile.Dispenser, options []option) error {
	d.Next() // the name
	if d.NextArg() {
		return d.ArgErr()
	}
	return unmarshalOptions(d, options)
}

// unmarshalOptions reads the block that may follow.
func unmarshalOptions(d *caddyfile.Dispenser, options []option) error {
	seen := map[string]bool{}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		i := slices.IndexFunc(options, func(o option) bool { return o.name == name })
		switch {
		case i < 0:
			return unknownOption(d, options)
		case options[i].planned:
			return d.Errf("%s is not supported by this version", name)
		case seen[name]:
			return d.Errf("%s is given twice", name)
		}
		seen[name] = true
		if err := options[i].unmarshal(d); err != nil {
			return err
		}
	}
	return nil
}

// unknownOption says what the current token could have been, or where else it
// would have been right.
func unknownOption(d *caddyfile.Dispenser, options []option) error {
	var known []string
	for _, o := range options {
		if o.block != nil && slices.ContainsFunc(o.block.open(), func(inner option) bool { return inner.name == d.Val() }) {
			return d.Errf("%s belongs in %s { }", d.Val(), o.name)
		}
		if !o.planned {
			known = append(known, o.name)
		}
	}
	if len(known) == 0 {
		return d.Errf("unknown option %s", d.Val())
	}
	return d.Errf("unknown option %s: must be one of %s", d.Val(), strings.Join(known, ", "))
}

// unmarshal reads one option. Its value is checked at once, so that an error
// names the line, unless a placeholder keeps it unknown until the configuration is
// loaded.
func (o option) unmarshal(d *caddyfile.Dispenser) error {
	if o.block != nil {
		if d.NextArg() {
			return d.ArgErr()
		}
		return unmarshalOptions(d, o.block.open())
	}
	err := o.value.set(d.RemainingArgs())
	if errors.Is(err, errArguments) {
		return d.ArgErr()
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", o.name, err)
	case !slices.ContainsFunc(o.value.given(), hasPlaceholder):
		err = o.read(o.name)
	}
	if err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// fillOptions reads the options of a table as they are used: with placeholders
// replaced, and those that are absent from their environment variables, else from
// their defaults.
func fillOptions(options []option) error {
	var errs []error
	for _, o := range options {
		switch {
		case o.block != nil:
			errs = append(errs, fillOptions(o.block.table()))
		case !o.planned:
			errs = append(errs, o.fill())
		}
	}
	return errors.Join(errs...)
}

func (o option) fill() error {
	name, given := o.name, o.value.given()
	if slices.ContainsFunc(given, hasPlaceholder) {
		return o.fillReplaced(given)
	}
	if len(given) == 0 {
		text := o.fallback
		if env := os.Getenv(o.variable); env != "" {
			name, text = "environment variable "+o.variable, env
		}
		if text == "" {
			return nil
		}
		if err := o.value.set(strings.Fields(text)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return o.read(name)
}

// fillReplaced reads an option with placeholders. A whole number counts seconds
// there: it comes from the environment.
func (o option) fillReplaced(given []string) error {
	replaced, err := replacePlaceholders(given)
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	if err := o.value.set(replaced); err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	if err := o.read(o.name); err != nil {
		return fmt.Errorf("%w (from %s)", err, strings.Join(given, " "))
	}
	return nil
}

// read checks the value that was set and hands it to the program.
func (o option) read(name string) error {
	if o.check != nil {
		if err := o.check(name, o.value.given()); err != nil {
			return err
		}
	}
	if err := o.value.use(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// errArguments says that an option has too many or too few arguments.
var errArguments = errors.New("wrong number of arguments")

func single(args []string) (string, error) {
	if len(args) != 1 || args[0] == "" {
		return "", errArguments
	}
	return args[0], nil
}

// asText is one string. Nothing is used of it when used is nil.
func asText[S ~string](field *string, used *S) value {
	return ofString(field, func() error {
		if used != nil {
			*used = S(*field)
		}
		return nil
	})
}

// asSwitch is `on` or `off`. used is true in the given one of the two.
func asSwitch(given string, field *string, used *bool) value {
	return ofString(field, func() error {
		*used = *field == given
		return nil
	})
}

// asSet is a list of strings whose order and repetitions mean nothing.
func asSet[S ~string](field *[]string, used *[]S) value {
	return value{
		given: func() []string { return *field },
		set: func(args []string) error {
			if len(args) == 0 {
				return errArguments
			}
			*field = args
			return nil
		},
		use: func() error {
			*used = nil
			for _, text := range slices.Compact(slices.Sorted(slices.Values(*field))) {
				*used = append(*used, S(text))
			}
			return nil
		},
	}
}

// asDuration is a duration of at least so much.
func asDuration(field *Duration, used *time.Duration, least time.Duration) value {
	v := ofString((*string)(field), func() error {
		d, err := parseDuration(string(*field), "nanoseconds")
		if err == nil && d < least {
			err = fmt.Errorf("%s is shorter than %s", d, least)
		}
		*used = d
		return err
	})
	v.set = func(args []string) error {
		text, err := single(args)
		if err != nil {
			return err
		}
		if hasPlaceholder(text) {
			*field = Duration(text)
			return nil
		}
		d, err := parseDuration(text, "seconds")
		*field = Duration(d.String())
		return err
	}
	return v
}

func ofString(field *string, use func() error) value {
	return value{
		given: func() []string {
			if *field == "" {
				return nil
			}
			return []string{*field}
		},
		set: func(args []string) (err error) {
			*field, err = single(args)
			return err
		},
		use: use,
	}
}

// maxQuoted is how many characters of a wrong value an error shows: the value may
// be a file that was named by mistake.
const maxQuoted = 64

// oneOf accepts only these values.
func oneOf(allowed ...string) check {
	return func(name string, values []string) error {
		for _, value := range values {
			if !slices.Contains(allowed, value) {
				return fmt.Errorf("%s: unknown value %s: must be one of %s", name, text.Quote(value, maxQuoted), strings.Join(allowed, ", "))
			}
		}
		return nil
	}
}

// namespaces accepts names that a namespace can have. The error speaks of what.
func namespaces(what string) check { return kubernetesNames(what, validation.IsDNS1123Label) }

func kubernetesNames(what string, problemsOf func(string) []string) check {
	return func(_ string, values []string) error {
		for _, value := range values {
			if problems := problemsOf(value); len(problems) > 0 {
				return fmt.Errorf("%s %s: %s", what, text.Quote(value, maxQuoted), problems[0])
			}
		}
		return nil
	}
}
