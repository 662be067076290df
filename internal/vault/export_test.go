package vault

import "time"

// SetTimes makes renewals of v shorter than they are outside tests.
func SetTimes(v *Vault, claim, ask, pause time.Duration) {
	v.renewer.times = renewalTimes{claim, ask, pause}
}

// The times that tests wait for.
var (
	ClaimTime = usualTimes.claim
	AskTime   = usualTimes.ask
	PauseTime = usualTimes.pause
)

// SharedInterval and SettleTime are those of the package.
const (
	SharedInterval = sharedInterval
	SettleTime     = settleTime
	UnseenFor      = unseenFor
)

// RowKey returns the group and the name of the owner's row.
func RowKey(o Owner) (group, name string) { return groupOf(o.rowName()), o.rowName() }
