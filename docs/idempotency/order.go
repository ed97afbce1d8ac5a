// Idempotency keys from Go, with lib/pq.
//
// Needs Go 1.19, github.com/lib/pq, and a database with the extension, as PGHOST etc. name it.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/lib/pq"
)

const (
	leaseLost = "OB001"
	noKey     = "22004"
)

type Answer struct {
	Status int
	Body   json.RawMessage
}

// Optional arguments of idempotency_begin. Empty: the default of the settings.
type Times struct{ Wait, Lease string }

// The common interface of *sql.DB and *sql.Tx.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// The answer is nil if the decision is execute.
func begin(ctx context.Context, q Querier, scope string, key *string, body any, times Times) (token int64, answer *Answer, err error) {
	request, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	var decision string
	var given, status sql.NullInt64
	var response []byte
	err = q.QueryRowContext(ctx,
		`SELECT decision, token, http_hint, response
		   FROM idempotency_begin($1, $2, $3, wait => nullif($4, '')::interval, lease => nullif($5, '')::interval)`,
		scope, key, string(request), times.Wait, times.Lease).Scan(&decision, &given, &status, &response)
	if err == nil && decision != "execute" {
		answer = &Answer{int(status.Int64), response}
	}
	return given.Int64, answer, err
}

func finish(ctx context.Context, q Querier, scope, key string, token int64, answer *Answer, failed bool) error {
	_, err := q.ExecContext(ctx, "SELECT idempotency_finish($1, $2, $3, $4, $5, failed => $6)",
		scope, key, token, answer.Status, string(answer.Body), failed)
	return err
}

type Order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// POST /orders: all work is in the database, so one transaction is enough.
func createOrder(ctx context.Context, db *sql.DB, key *string, body Order, times Times) (*Answer, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // has no effect after Commit
	token, answer, err := begin(ctx, tx, "order.create", key, body, times)
	if code(err) == noKey {
		return &Answer{400, json.RawMessage(`{"error": "Idempotency-Key is missing"}`)}, nil
	}
	if err != nil || answer != nil {
		return answer, err
	}
	var id int64
	if err = tx.QueryRowContext(ctx, "INSERT INTO example_orders (item) VALUES ($1) RETURNING id", body.Item).Scan(&id); err != nil {
		return nil, err
	}
	answer = &Answer{201, json.RawMessage(fmt.Sprintf(`{"order": %d}`, id))}
	if _, err = tx.ExecContext(ctx, "SELECT outbox_enqueue('Order', $1::bigint, 'OrderCreated', $2)", id, string(answer.Body)); err != nil {
		return nil, err
	}
	if err = finish(ctx, tx, "order.create", *key, token, answer, false); err != nil {
		return nil, err
	}
	return answer, tx.Commit()
}

type Payment struct {
	Amount int `json:"amount"`
}

// POST /payments: calls the provider between two transactions, without a lock.
func capturePayment(ctx context.Context, db *sql.DB, provider *Provider, key string, body Payment, times Times) (*Answer, error) {
	token, answer, err := begin(ctx, db, "payment.capture", &key, body, times)
	if err != nil || answer != nil {
		return answer, err
	}
	approved, err := provider.charge(key, body.Amount)
	if err != nil {
		return nil, err // the outcome is unknown: the key is free again when the lease expires
	}
	answer = &Answer{402, json.RawMessage(`{"error": "card declined"}`)}
	if approved {
		answer = &Answer{200, json.RawMessage(fmt.Sprintf(`{"paid": %d}`, body.Amount))}
	}
	return answer, finish(ctx, db, "payment.capture", key, token, answer, !approved)
}

func code(err error) string {
	var server *pq.Error
	if errors.As(err, &server) {
		return string(server.Code)
	}
	return ""
}

// ---- Demonstration.

// A payment provider. It supports idempotency keys: a repeated charge is made once.
type Provider struct {
	calls   int
	charges map[string]int
	crash   bool
}

func (p *Provider) charge(key string, amount int) (bool, error) {
	p.calls++
	p.charges[key] = amount
	if p.crash {
		return false, errors.New("and the server that called is gone, too")
	}
	return amount < 1000, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func assert(holds bool) {
	if !holds {
		log.Fatal("not as it should be")
	}
}

func main() {
	ctx := context.Background()
	db := must(sql.Open("postgres", "sslmode=disable"))
	must(db.Exec("CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY, item text)"))
	countOrders := func(item string) (count int) {
		must(0, db.QueryRow("SELECT count(*) FROM example_orders WHERE item = $1", item).Scan(&count))
		return count
	}
	run := fmt.Sprint(time.Now().UnixNano()) // makes keys unique to this run
	a, b, c, d, e := run+"-a", run+"-b", run+"-c", run+"-d", run+"-e"

	first := must(createOrder(ctx, db, &a, Order{a, 1}, Times{}))
	second := must(createOrder(ctx, db, &a, Order{a, 1}, Times{}))
	assert(bytes.Equal(first.Body, second.Body))
	fmt.Printf("twice: %d and %d, %d order\n", first.Status, second.Status, countOrders(a))
	fmt.Printf("another request: %d\n", must(createOrder(ctx, db, &a, Order{a, 2}, Times{})).Status)
	fmt.Printf("no key: %d\n", must(createOrder(ctx, db, nil, Order{a, 1}, Times{})).Status)

	var group sync.WaitGroup
	answers := make([]*Answer, 8)
	for i := range answers {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			answers[i] = must(createOrder(ctx, db, &b, Order{b, 1}, Times{Wait: "30 s"}))
		}(i)
	}
	group.Wait()
	for _, answer := range answers {
		assert(answer.Status == answers[0].Status && bytes.Equal(answer.Body, answers[0].Body))
	}
	fmt.Printf("eight at once: %d, %d order\n", answers[0].Status, countOrders(b))

	// The first attempt has not committed. Then its client crashes.
	tx := must(db.Begin())
	_, _, err := begin(ctx, tx, "order.create", &c, Order{c, 1}, Times{})
	assert(err == nil)
	fmt.Printf("while it runs: %d\n", must(createOrder(ctx, db, &c, Order{c, 1}, Times{})).Status)
	tx.Rollback()
	answer := must(createOrder(ctx, db, &c, Order{c, 1}, Times{Wait: "30 s"}))
	fmt.Printf("after a crash: %d, %d order\n", answer.Status, countOrders(c))

	provider := &Provider{charges: map[string]int{}}
	first = must(capturePayment(ctx, db, provider, d, Payment{5000}, Times{}))
	second = must(capturePayment(ctx, db, provider, d, Payment{5000}, Times{}))
	fmt.Printf("declined twice: %d and %d, %d call\n", first.Status, second.Status, provider.calls)

	// The payment is made, but the client crashes before the second transaction.
	provider = &Provider{charges: map[string]int{}, crash: true}
	_, err = capturePayment(ctx, db, provider, e, Payment{10}, Times{Lease: "1 s"})
	assert(err != nil)
	provider.crash = false
	atOnce := must(capturePayment(ctx, db, provider, e, Payment{10}, Times{}))
	time.Sleep(1100 * time.Millisecond)
	token, _, err := begin(ctx, db, "payment.capture", &e, Payment{10}, Times{Lease: "1 s"}) // the client crashes again
	assert(err == nil && token != 0)
	time.Sleep(1100 * time.Millisecond)
	later := must(capturePayment(ctx, db, provider, e, Payment{10}, Times{}))
	fmt.Printf("after a crash between: %d, then %d, %d charge\n", atOnce.Status, later.Status, len(provider.charges))
	err = finish(ctx, db, "payment.capture", e, token, &Answer{200, json.RawMessage("{}")}, false)
	assert(code(err) == leaseLost)
	fmt.Printf("the crashed one comes back: %s\n", code(err))
}
