// Idempotency keys from Node, with pg.
//
// Needs Node 18, pg 8, and a database with the extension, as PGHOST etc. name it.
'use strict';

const assert = require('assert');
const { Client } = require('pg');

const LEASE_LOST = 'OB001';
const NO_KEY = '22004';

async function begin(client, scope, key, body, { wait = null, lease = null } = {}) {
  const { rows } = await client.query(
    'SELECT decision, token, http_hint AS status, response FROM idempotency_begin($1, $2, $3, wait => $4, lease => $5)',
    [scope, key, JSON.stringify(body), wait, lease]);
  return rows[0]; // pg returns the token, a bigint, as a string: do not convert it
}

function finish(client, scope, key, token, status, response, failed = false) {
  return client.query('SELECT idempotency_finish($1, $2, $3, $4, $5, failed => $6)',
    [scope, key, token, status, JSON.stringify(response), failed]);
}

async function transaction(client, work) {
  await client.query('BEGIN');
  try {
    const result = await work();
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {}); // the connection may be lost
    throw error;
  }
}

// POST /orders: all work is in the database, so one transaction is enough.
async function createOrder(client, key, body, wait) {
  try {
    return await transaction(client, async () => {
      const { decision, token, status, response } = await begin(client, 'order.create', key, body, { wait });
      if (decision !== 'execute') return { status, body: response };
      const { rows } = await client.query('INSERT INTO example_orders (item) VALUES ($1) RETURNING id', [body.item]);
      const order = { order: rows[0].id };
      await client.query("SELECT outbox_enqueue('Order', $1, 'OrderCreated', $2)", [order.order, JSON.stringify(order)]);
      await finish(client, 'order.create', key, token, 201, order);
      return { status: 201, body: order };
    });
  } catch (error) {
    if (error.code === NO_KEY) return { status: 400, body: { error: 'Idempotency-Key is missing' } };
    throw error;
  }
}

// POST /payments: calls the provider between two transactions, without a lock.
async function capturePayment(client, provider, key, body, lease) {
  const { decision, token, status, response } = await begin(client, 'payment.capture', key, body, { lease });
  if (decision !== 'execute') return { status, body: response };
  const approved = await provider.charge(key, body.amount);
  const answer = approved ? { status: 200, body: { paid: body.amount } } : { status: 402, body: { error: 'card declined' } };
  await finish(client, 'payment.capture', key, token, answer.status, answer.body, !approved);
  return answer;
}

// ---- Demonstration.

// A payment provider. It supports idempotency keys: a repeated charge is made once.
class Provider {
  calls = 0;
  charges = new Map();
  crash = false;

  async charge(key, amount) {
    this.calls++;
    this.charges.set(key, amount);
    if (this.crash) throw new Error('and the server that called is gone, too');
    return amount < 1000;
  }
}

async function connect() {
  const client = new Client();
  await client.connect();
  return client;
}

async function countOrders(client, item) {
  const { rows } = await client.query('SELECT count(*)::int AS count FROM example_orders WHERE item = $1', [item]);
  return rows[0].count;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function main() {
  let one = await connect();
  const two = await connect();
  const run = process.hrtime.bigint() + '-' + process.pid; // makes keys unique to this run
  await one.query('CREATE TABLE IF NOT EXISTS example_orders (id bigint GENERATED ALWAYS AS IDENTITY, item text)');

  const first = await createOrder(one, run + '-a', { item: run + '-a', count: 1 });
  const second = await createOrder(two, run + '-a', { count: 1, item: run + '-a' });
  assert.deepStrictEqual(first, second);
  console.log(`twice: ${first.status} and ${second.status}, ${await countOrders(one, run + '-a')} order`);
  console.log(`another request: ${(await createOrder(two, run + '-a', { item: 'x' })).status}`);
  console.log(`no key: ${(await createOrder(two, null, { item: 'x' })).status}`);

  const answers = await Promise.all(Array.from({ length: 8 }, async () => {
    const client = await connect();
    const answer = await createOrder(client, run + '-b', { item: run + '-b' }, '30 s');
    await client.end();
    return answer;
  }));
  for (const answer of answers) assert.deepStrictEqual(answer, answers[0]);
  console.log(`eight at once: ${answers[0].status}, ${await countOrders(one, run + '-b')} order`);

  // The first attempt has not committed. Then its client crashes.
  await one.query('BEGIN');
  await begin(one, 'order.create', run + '-c', { item: run + '-c' });
  console.log(`while it runs: ${(await createOrder(two, run + '-c', { item: run + '-c' })).status}`);
  await one.end();
  const answer = await createOrder(two, run + '-c', { item: run + '-c' }, '30 s');
  console.log(`after a crash: ${answer.status}, ${await countOrders(two, run + '-c')} order`);

  one = await connect();
  let provider = new Provider();
  const statuses = [];
  for (let i = 0; i < 2; i++) statuses.push((await capturePayment(one, provider, run + '-d', { amount: 5000 })).status);
  console.log(`declined twice: ${statuses[0]} and ${statuses[1]}, ${provider.calls} call`);

  // The payment is made, but the client crashes before the second transaction.
  provider = new Provider();
  provider.crash = true;
  await assert.rejects(capturePayment(one, provider, run + '-e', { amount: 10 }, '1 s'));
  provider.crash = false;
  const atOnce = (await capturePayment(two, provider, run + '-e', { amount: 10 })).status;
  await sleep(1100);
  const { token } = await begin(one, 'payment.capture', run + '-e', { amount: 10 }, { lease: '1 s' }); // the client crashes again
  await sleep(1100);
  const later = (await capturePayment(two, provider, run + '-e', { amount: 10 })).status;
  console.log(`after a crash between: ${atOnce}, then ${later}, ${provider.charges.size} charge`);
  await assert.rejects(finish(one, 'payment.capture', run + '-e', token, 200, {}), (error) => {
    console.log(`the crashed one comes back: ${error.code}`);
    return error.code === LEASE_LOST;
  });
  await one.end();
  await two.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
