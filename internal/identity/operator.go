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

// OperatorHeader is the request header that holds the operator's token.
const OperatorHeader = "Switchboard-Operator"

// OperatorFile is the name of the file with the operator's token, in the data folder.
const OperatorFile = "operator.token"

const operatorPrefix = "sb_op_"

// An Operator checks the operator's token. The zero value accepts no token. It is safe for concurrent use.
type Operator struct{ token switchboard.Secret }

// OpenOperator reads the token in the data folder, and makes one if there is none. If several processes do so
// at the same time, all get the same token. It refuses a file that other users may read or write.
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

// ReadOperator reads the token in the data folder; the error is fs.ErrNotExist if there is none.
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

// createOperatorFile writes a new token, unless another process does so first. A reader never sees half a
// token.
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

// Check refuses a request (SB-AUTH-002) without the operator's token in its headers.
func (o Operator) Check(head http.Header) error {
	if o.token.Reveal() == "" {
		return switchboard.Refuse(switchboard.CodeNotAuthorized, "this Switchboard has no token of operators: it serves without a data folder (--data), or its log says why")
	}
	if !o.token.Equal(switchboard.NewSecret(head.Get(OperatorHeader))) {
		return switchboard.Refuse(switchboard.CodeNotAuthorized,
			"this needs the token of operators, and the request does not hold it; run the command in the folder that Switchboard serves from, or name its data folder with --data")
	}
	return nil
}
