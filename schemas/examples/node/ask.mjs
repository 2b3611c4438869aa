// Sends one request for each KEY to the dispatcher and prints the replies as they come, a line each:
// key, partition and offset of the request, and the reply's value, with tabs between them.
//
//     node ask.mjs BROKERS PREFIX UPSTREAM PATH KEY...
//     node ask.mjs localhost:9092 dispatcher openai /models apikey:team-a
import { randomUUID } from 'node:crypto'
import { Consumer, FetchIsolationLevels, Producer, compatibilityPartitioner } from '@platformatic/kafka'

const REPLY_TIMEOUT_MS = 60_000
const FETCH_MS = 500
const FETCH_BYTES = 10 * 1024 * 1024 // a reply has at most 8 MiB
const CONTROL = 0x20 // the batch holds a transaction's marker, no record

const [brokers, prefix, upstream, path, ...keys] = process.argv.slice(2)
if (keys.length === 0) {
  console.error('usage: node ask.mjs BROKERS PREFIX UPSTREAM PATH KEY...')
  process.exit(2)
}
const requestTopic = `${prefix}.requests`
const replyTopic = `${prefix}.replies`
const client = { clientId: 'dispatcher-example', bootstrapBrokers: brokers.split(',') }

const producer = new Producer({
  ...client,
  // Idempotent, and so acknowledged by all in-sync replicas: a plain producer's retries change the order.
  idempotent: true,
  // Java's murmur2, as all producers of a request topic must use it. The client's default takes another partition for half of the
  // keys, unless the number of partitions is a power of two: the worker would refuse those requests (wrong_partition).
  partitioner: compatibilityPartitioner
})
const consumer = new Consumer({
  ...client,
  // The client wants a name; fetch and listOffsets join no group, and none comes to be.
  groupId: 'dispatcher-example',
  // Replies are written in transactions: without this, those of an aborted one would be read too.
  isolationLevel: FetchIsolationLevels.READ_COMMITTED
})

// Sends a request and gives where it stands. One at a time: the client numbers an idempotent producer's records when they are acknowledged.
async function submit (key, id) {
  const { offsets } = await producer.send({
    messages: [{
      topic: requestTopic,
      key: Buffer.from(key),
      value: Buffer.from(JSON.stringify({ upstream, path, method: 'GET' })),
      headers: new Map([[Buffer.from('ce_id'), Buffer.from(id)]])
    }]
  })
  return offsets[0]
}

// Reads each partition on from its position in `positions` (partition -> offset), moves them, and gives the records found.
async function read (topic, positions) {
  const byLeader = new Map()
  for (const partition of positions.keys()) {
    const { leader } = topic.partitions[partition]
    byLeader.set(leader, [...(byLeader.get(leader) ?? []), partition])
  }
  const answers = await Promise.all([...byLeader].map(([node, partitions]) => consumer.fetch({
    node,
    topics: [{
      topicId: topic.id,
      partitions: partitions.map(partition => ({
        partition,
        fetchOffset: positions.get(partition),
        partitionMaxBytes: FETCH_BYTES,
        currentLeaderEpoch: -1,
        lastFetchedEpoch: -1
      }))
    }],
    minBytes: 1,
    maxBytes: FETCH_BYTES,
    maxWaitTime: FETCH_MS
  })))
  const records = []
  for (const { partitionIndex, records: batches } of answers.flatMap(answer => answer.responses).flatMap(found => found.partitions)) {
    for (const batch of batches ?? []) {
      const next = batch.firstOffset + BigInt(batch.lastOffsetDelta) + 1n
      // A batch may begin before the position that was asked for.
      const unread = batch.records.filter(record => batch.firstOffset + BigInt(record.offsetDelta) >= positions.get(partitionIndex))
      positions.set(partitionIndex, next)
      if (!(batch.attributes & CONTROL)) records.push(...unread)
    }
  }
  return records
}

function header (record, name) {
  return record.headers.find(([found]) => found.toString() === name)?.[1]?.toString()
}

// Before anything is sent: a reply that comes at once is not missed. A reply stands on the partition of its request's number.
const ends = (await consumer.listOffsets({ topics: [replyTopic] })).get(replyTopic)
const waiting = new Map()
const positions = new Map()
for (const key of keys) {
  const id = randomUUID()
  const place = await submit(key, id)
  waiting.set(id, { key, ...place })
  positions.set(place.partition, ends[place.partition])
}

const topic = (await consumer.metadata({ topics: [replyTopic] })).topics.get(replyTopic)
const deadline = Date.now() + REPLY_TIMEOUT_MS
while (waiting.size > 0 && Date.now() < deadline) {
  for (const record of await read(topic, positions)) {
    const id = header(record, 'ce_causationid')
    const request = waiting.get(id)
    if (request && waiting.delete(id)) {
      console.log([request.key, request.partition, request.offset, record.value.toString()].join('\t'))
    }
  }
}
await producer.close()
await consumer.close()
if (waiting.size > 0) {
  console.error(`no reply within ${REPLY_TIMEOUT_MS / 1000} s for: ${[...waiting.keys()].join(' ')}`)
  process.exitCode = 4
}
