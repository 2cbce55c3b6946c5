// Package onceworld keeps what the tests of one package share: servers that
// take seconds to start, and that all tests may use. The first test that asks
// for them starts them, so that a run of other tests pays nothing. When they
// cannot start, each test that asks fails with the first error. What was
// started ends after the last test, also when something after it failed to.
//
// A package uses it so:
//
//	var shared = onceworld.New(newWorld)
//
//	func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }
//
//	func newWorld(ctx context.Context, s *onceworld.Setup) (*world, error) {
//		idp, err := oidc.New(oidc.Options{})
//		if err != nil {
//			return nil, err
//		}
//		s.AtEnd(idp.Stop)
//		return &world{idp: idp}, nil
//	}
//
// after which a test calls shared.Get(t).
package onceworld
