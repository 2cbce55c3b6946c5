package directory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// record follows one object of the directory over time.
type record struct {
	id objectID
	// uid and created are what an apiserver sets when an object is created.
	uid     types.UID
	created metav1.Time
	// generation counts the accepted versions of the spec.
	generation int64
	// file is the name of the file that the object comes from.
	file string
	// source is the accepted manifest, nil when none was ever accepted. value is
	// source with the fields that an apiserver sets.
	source, value metav1.Object
	// readable is what can be read of a ProxyKubeApi that was never accepted.
	readable *v1.ProxyKubeApi
	// refused says why the newest version is not in force, empty when it is.
	refused string
}

// sourced is a manifest and the file that holds it.
type sourced struct {
	file string
	*manifest
}

// reconcile brings all objects up to date with the files, and reports whether an
// object changed.
func (d *Source) reconcile() bool {
	candidates := d.candidates()
	changed := false
	for id, r := range d.records {
		if len(candidates[id]) == 0 && d.forget(r) {
			changed = true
		}
	}
	for id, found := range candidates {
		r := d.records[id]
		if r == nil {
			r = d.newRecord(id)
			changed = true
		}
		if d.follow(r, found) {
			changed = true
		}
	}
	return changed
}

// candidates are the manifests of all files by the object they name, in the
// order of the files' names. A file that disappeared a moment ago gives way to
// another file with the same object: the object was moved.
func (d *Source) candidates() map[objectID][]sourced {
	all := map[objectID][]sourced{}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if content := d.files[name].content; content != nil {
			for _, m := range content.manifests {
				all[m.id] = append(all[m.id], sourced{name, m})
			}
		}
	}
	for id, found := range all {
		staying := slices.DeleteFunc(slices.Clone(found), func(s sourced) bool { return d.files[s.file].seen.absent })
		if len(staying) > 0 {
			all[id] = staying
		}
	}
	return all
}

// forget removes an object that no file holds any more, unless its file has a
// nameless object, which may be this one.
func (d *Source) forget(r *record) (changed bool) {
	file := d.files[r.file]
	if file == nil || file.content == nil || len(file.content.nameless) == 0 {
		delete(d.records, r.id)
		d.logger.Info("object removed", zap.Stringer("object", r.id), zap.String("file", r.file))
		return true
	}
	return d.refuse(r, displayName(r.file)+": "+file.content.nameless[0], true)
}

// follow brings an object up to date with the manifests that name it.
func (d *Source) follow(r *record, found []sourced) (changed bool) {
	chosen := choose(r, found)
	problem := twice(r, found, chosen)
	if chosen == nil {
		return d.refuse(r, problem, true)
	}
	r.file = chosen.file
	file := d.files[r.file]
	switch {
	case file.problem != "":
		problem = displayName(r.file) + ": " + file.problem
	case chosen.refused != "":
		problem = displayName(r.file) + ": " + chosen.refused
	}
	if chosen.value == nil {
		changed = r.show(chosen.readable)
	} else if r.source == nil || !apiequality.Semantic.DeepEqual(r.source, chosen.value) {
		d.accept(r, chosen.value)
		changed = true
	}
	// What is wrong with the file was logged once for all its objects.
	return d.refuse(r, problem, file.problem == "") || changed
}

// show notes what can be read of an object that was never accepted.
func (r *record) show(readable *v1.ProxyKubeApi) (changed bool) {
	if r.source != nil || readable == nil {
		return false
	}
	readable = readable.DeepCopy()
	readable.SetUID(r.uid)
	readable.SetCreationTimestamp(r.created)
	if apiequality.Semantic.DeepEqual(r.readable, readable) {
		return false
	}
	r.readable = readable
	return true
}

// choose picks the manifest that counts when several name an object: the
// running one stays (CONF-6). nil means that none of them is the running one.
func choose(r *record, found []sourced) *sourced {
	if own := slices.DeleteFunc(slices.Clone(found), func(s sourced) bool { return s.file != r.file }); len(own) > 0 {
		found = own
	}
	if len(found) == 1 {
		return &found[0]
	}
	if r.source != nil {
		for i := range found {
			if found[i].value != nil && apiequality.Semantic.DeepEqual(r.source, found[i].value) {
				return &found[i]
			}
		}
		return nil
	}
	for i := range found {
		if found[i].value != nil {
			return &found[i]
		}
	}
	return &found[0]
}

// twice says in which files an object is when there is more than one.
func twice(r *record, found []sourced, chosen *sourced) string {
	if len(found) < 2 {
		return ""
	}
	var files []string
	for _, s := range found {
		files = append(files, s.file)
	}
	files = slices.Compact(files)
	switch {
	case len(files) > 1 && chosen != nil:
		other := files[0]
		if other == chosen.file {
			other = files[1]
		}
		return fmt.Sprintf("the object is in %s and in %s: the one in %s stays", displayName(chosen.file), displayName(other), displayName(chosen.file))
	case len(files) > 1:
		return fmt.Sprintf("the object is in %s and in %s: the running version stays", displayName(files[0]), displayName(files[1]))
	case chosen == nil:
		return fmt.Sprintf("the object is in %s twice: the running version stays", displayName(files[0]))
	}
	return fmt.Sprintf("the object is in %s twice: one of the two counts", displayName(files[0]))
}

// accept puts a version into force.
func (d *Source) accept(r *record, source metav1.Object) {
	if r.source == nil || specChanged(r.source, source) {
		r.generation++
	}
	d.revision++
	value := copyOf(source)
	value.SetUID(r.uid)
	value.SetCreationTimestamp(r.created)
	value.SetGeneration(r.generation)
	value.SetResourceVersion(strconv.FormatInt(d.revision, 10))
	r.source, r.value, r.readable = source, value, nil
	d.logger.Info("object accepted", zap.Stringer("object", r.id), zap.String("file", r.file), zap.Int64("generation", r.generation))
}

// refuse notes why the newest version is not in force, "" when it is.
func (d *Source) refuse(r *record, problem string, log bool) (changed bool) {
	problem = text.OneLine(problem, k8swatch.MaxMessage)
	if r.refused == problem {
		return false
	}
	r.refused = problem
	if problem != "" && log {
		d.logger.Warn("object refused", zap.Stringer("object", r.id), zap.Bool("earlier_version_stays", r.value != nil), zap.String("reason", problem))
	}
	return true
}

func copyOf(object metav1.Object) metav1.Object {
	switch object := object.(type) {
	case *v1.ProxyKubeApi:
		return object.DeepCopy()
	case *corev1.Secret:
		return object.DeepCopy()
	case *corev1.ConfigMap:
		return object.DeepCopy()
	}
	panic(fmt.Sprintf("a directory holds no %T", object))
}

// specChanged says whether the generation counts on: observedGeneration counts
// accepted versions of the spec (CONF-6).
func specChanged(before, after metav1.Object) bool {
	a, ok := before.(*v1.ProxyKubeApi)
	b, ok2 := after.(*v1.ProxyKubeApi)
	return ok && ok2 && !apiequality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// uidSpace makes the UIDs of directories different from all others.
var uidSpace = uuid.MustParse("9e7dd1b0-4f0e-5a0c-8a1c-1d2f6f3f7a55")

// newRecord is a new object. Its UID is the same in every process, until the
// object is deleted and made again: what was cached for the old one must not
// serve the new one.
func (d *Source) newRecord(id objectID) *record {
	d.made[id]++
	r := &record{
		id:      id,
		uid:     types.UID(uuid.NewSHA1(uidSpace, fmt.Appendf(nil, "%s/%s/%s/%d", id.kind, id.Namespace, id.Name, d.made[id])).String()),
		created: metav1.Now(),
	}
	d.records[id] = r
	return r
}
