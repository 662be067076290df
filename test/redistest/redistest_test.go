package redistest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestAServerThatIsKilledComesBackWithWhatItHad(t *testing.T) {
	s := redistest.Start(t)
	s.Do("set", "k", "v")
	s.Kill()
	s.Start()
	if got := s.Do("get", "k"); got != "v" {
		t.Errorf("k is %v", got)
	}
}

func TestAClusterSharesItsSlots(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	c.Nodes[0].Do("set", "{06S}", "v") // slot 0
	c.Nodes[1].Kill()
	c.Nodes[1].Start()
	c.Wait()
}

func TestASentinelPutsTheReplicaInThePlaceOfItsMaster(t *testing.T) {
	w := redistest.StartWatched(t)
	w.Master.Do("set", "k", "v")
	w.Master.Do("wait", 1, 5000)
	w.Master.Kill()
	wait.UntilNil(t, "the replica is master", func() error {
		role, err := w.Replica.Try("role")
		if err == nil && !strings.HasPrefix(fmt.Sprint(role), "[master") {
			err = errors.New(fmt.Sprint(role))
		}
		return err
	})
	if got := w.Replica.Do("get", "k"); got != "v" {
		t.Errorf("k is %v", got)
	}
}
