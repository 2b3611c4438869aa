// Prints what AsyncAPI's parser says of a document, as a JSON list; an empty one says that nothing is to be said.
import { Parser, fromFile } from '@asyncapi/parser'

const { document, diagnostics } = await fromFile(new Parser(), process.argv[2]).parse()
const said = diagnostics.map(({ code, path, message }) => `${path.join('.')}: ${message} (${code})`)
console.log(JSON.stringify(document ? said : [...said, 'the parser gives no document']))
