package identity

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// OperatorHeader is the header of a request that holds the token of whoever operates this Switchboard.
const OperatorHeader = "Switchboard-Operator"

// OperatorFile is the name, in the data folder, of the file with the token of operators.
const OperatorFile = "operator.token"

const operatorPrefix = "sb_op_"

// An Operator knows the token of whoever operates this Switchboard. The zero value knows nobody. It is safe
// for concurrent use.
type Operator struct{ token switchboard.Secret }

// OpenOperator reads the token in the data folder, and makes one where there is none. Of several processes that do so
// at once, all get the same. A file that other users may read or write is refused.
func OpenOperator(dir string) (Operator, error) {
	token, err := ReadOperator(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createOperatorFile(dir); err != nil {
			return Operator{}, fmt.Errorf("token of operators: %w", err)
		}
		token, err = ReadOperator(dir)
	}
	return Operator{token}, err
}

// ReadOperator reads the token in the data folder; the error is fs.ErrNotExist where there is none.
func ReadOperator(dir string) (switchboard.Secret, error) {
	name := filepath.Join(dir, OperatorFile)
	info, err := os.Stat(name)
	if err != nil {
		return switchboard.Secret{}, fmt.Errorf("token of operators: %w", err)
	}
	if err := switchboard.CheckPrivate(name, info); err != nil {
		return switchboard.Secret{}, fmt.Errorf("token of operators: %w; if another user has read it, remove it and start Switchboard again, which makes a new one", err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return switchboard.Secret{}, fmt.Errorf("token of operators: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if !strings.HasPrefix(token, operatorPrefix) || len(token) != len(operatorPrefix)+base64.RawURLEncoding.EncodedLen(keyBytes) {
		return switchboard.Secret{}, fmt.Errorf("token of operators: %s holds none; remove it, and start Switchboard again, which makes a new one", name)
	}
	return switchboard.NewSecret(token), nil
}

// createOperatorFile writes a new token, unless somebody else does so first. A reader never sees half of it.
func createOperatorFile(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, OperatorFile+".*") // of mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	var b [keyBytes]byte
	rand.Read(b[:])
	_, err = f.WriteString(operatorPrefix + base64.RawURLEncoding.EncodeToString(b[:]) + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), filepath.Join(dir, OperatorFile)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Check refuses (SB-AUTH-002) a request whose headers do not hold the operator's token.
func (o Operator) Check(head http.Header) error {
	if o.token.Reveal() == "" {
		return switchboard.Refuse(switchboard.CodeNotAuthorized, "this Switchboard has no token of operators: it serves without a data folder (--data), or its log says why")
	}
	if !o.token.Equal(switchboard.NewSecret(head.Get(OperatorHeader))) {
		return switchboard.Refuse(switchboard.CodeNotAuthorized,
			"only who can read the token of operators may do that, and this request does not hold it; run the command in the folder that Switchboard serves from, or name its data folder with --data")
	}
	return nil
}
