//! An editor's session with the server, over a connection in memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use weft_lang::elaborate::Loader;
use weft_lsp::lsp_server::{Connection, Message, Notification, Request};
use weft_lsp::{Workspace, serve};

const URI: &str = "file:///kernels/k.weft";

/// The parts of a library that has one function.
struct Parts;

const PART: &str = "// Two times x.\nfn twice(x) { 2 * x }\n";

impl Loader for Parts {
    fn file(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Err(format!("there is no `{path}`"))
    }
    fn builtin(&self, path: &str) -> Option<&str> {
        (path == "part").then_some(PART)
    }
}

struct Editor {
    connection: Connection,
    server: JoinHandle<()>,
    last: i32,
}

impl Editor {
    fn start() -> Editor {
        let (ours, theirs) = Connection::memory();
        let server = std::thread::spawn(move || {
            let loader = |_: &Path| Box::new(Parts) as Box<dyn Loader>;
            let library_file = |name: &str| Some(PathBuf::from(format!("/library/{name}.weft")));
            serve(&theirs, Workspace { loader, library_file }).unwrap();
        });
        let mut editor = Editor { connection: ours, server, last: 0 };
        let started = editor.ask("initialize", json!({ "capabilities": {} }));
        assert_eq!(started["capabilities"]["hoverProvider"], true);
        editor.tell("initialized", json!({}));
        editor
    }

    fn tell(&self, method: &str, params: Value) {
        self.connection.sender.send(Message::Notification(Notification::new(method.into(), params))).unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let request = Request::new(self.last.into(), method.into(), params);
        self.connection.sender.send(Message::Request(request)).unwrap();
        match self.connection.receiver.recv().unwrap() {
            Message::Response(response) => response.response_result.unwrap(),
            other => panic!("expected the answer of {method}, found {other:?}"),
        }
    }

    /// Opens a text and gives what is wrong with it.
    fn open(&self, text: &str) -> Vec<Value> {
        let document = json!({ "uri": URI, "languageId": "weft", "version": 1, "text": text });
        self.tell("textDocument/didOpen", json!({ "textDocument": document }));
        let Message::Notification(told) = self.connection.receiver.recv().unwrap() else { panic!() };
        assert_eq!(told.method, "textDocument/publishDiagnostics");
        told.params["diagnostics"].as_array().unwrap().clone()
    }

    /// Asks about a place, which is that of `|` in the text.
    fn ask_at(&mut self, method: &str, marked: &str) -> Value {
        let before = marked.split('|').next().unwrap();
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap().encode_utf16().count();
        let position = json!({ "line": line, "character": column });
        self.ask(method, json!({ "textDocument": { "uri": URI }, "position": position }))
    }

    fn stop(mut self) {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        self.server.join().unwrap();
    }
}

/// A text and the same without `|`, in which the editor's cursor stands.
fn at(text: &str, place: &str) -> String {
    assert_eq!(text.matches(place.replace('|', "").as_str()).count(), 1, "{place}");
    text.replacen(&place.replace('|', ""), place, 1)
}

const KERNEL: &str = "\
use weft::part;
// \u{1f600} Adds up.
fn add_up(x, n: int) { x + n }
kernel k(x: global<f32, (1024):(1)>, n: int) block(128) {
    let mine = partition(x, threads());
    for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * 2; }
    let pair = (first = twice(n), second = add_up(n, 1));
    if pair.first == n { trap(); }
}
";

#[test]
fn hover_definition_and_completion() {
    let mut editor = Editor::start();
    assert_eq!(editor.open(KERNEL), Vec::<Value>::new());
    let said = |answer: &Value| answer["contents"]["value"].as_str().unwrap_or_default().to_owned();

    let hover = said(&editor.ask_at("textDocument/hover", &at(KERNEL, "let mi|ne")));
    assert!(hover.contains("mine: tensor<f32, global") && hover.contains("align"), "{hover}");
    let hover = said(&editor.ask_at("textDocument/hover", &at(KERNEL, "= m|ine[_, i] * 2")));
    assert!(hover.contains("ld.global.v4") && hover.contains("st.global.v4"), "{hover}");
    let hover = said(&editor.ask_at("textDocument/hover", &at(KERNEL, "tw|ice(n)")));
    assert!(hover.contains("fn twice(x)") && hover.contains("Two times x."), "{hover}");
    let hover = said(&editor.ask_at("textDocument/hover", &at(KERNEL, "parti|tion(x")));
    assert!(hover.contains("partition("), "{hover}");

    let definition = editor.ask_at("textDocument/definition", &at(KERNEL, "tw|ice(n)"));
    assert_eq!(definition["uri"], "file:///library/part.weft");
    assert_eq!(definition["range"]["start"], json!({ "line": 1, "character": 3 }));
    let definition = editor.ask_at("textDocument/definition", &at(KERNEL, "= mi|ne[_, i] * 2"));
    assert_eq!((&definition["uri"], &definition["range"]["start"]["line"]), (&json!(URI), &json!(4)));

    let names = |answer: Value| -> Vec<String> {
        let items = answer.as_array().unwrap().iter();
        items.map(|item| item["label"].as_str().unwrap().to_owned()).collect()
    };
    let all = names(editor.ask_at("textDocument/completion", &at(KERNEL, "if |pair")));
    for name in ["pair", "mine", "twice", "add_up", "partition", "while"] {
        assert!(all.iter().any(|n| n == name), "{name} is not in {all:?}");
    }
    let fields = names(editor.ask_at("textDocument/completion", &at(KERNEL, "pair.|first == n")));
    assert!(fields.iter().any(|n| n == "second") && !fields.iter().any(|n| n == "while"), "{fields:?}");
    editor.stop();
}

#[test]
fn findings_and_their_fixes() {
    let mut editor = Editor::start();
    // Nothing calls `f`.
    let text = "fn f(total, n: int) { let a = totl; a = 1; a }\nkernel k<N: int>() block(32) { }\n";
    let found = editor.open(text);
    let messages: Vec<_> = found.iter().map(|d| d["message"].as_str().unwrap()).collect();
    assert_eq!(
        messages,
        [
            "`totl` is not defined here\nhelp: did you mean `total`?",
            "`a` is not `mut`\nhelp: declare it with `let mut a`"
        ]
    );
    let whole = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 0, "character": 60 } });
    let params = json!({ "textDocument": { "uri": URI }, "range": whole, "context": { "diagnostics": [] } });
    let actions = editor.ask("textDocument/codeAction", params);
    let edits: Vec<_> = (0..2).map(|n| actions[n]["edit"]["changes"][URI][0].clone()).collect();
    assert_eq!(
        (&edits[0]["newText"], &edits[0]["range"]["start"]["character"]),
        (&json!("total"), &json!(30))
    );
    assert_eq!(
        (&edits[1]["newText"], &edits[1]["range"]["start"]["character"]),
        (&json!("mut "), &json!(26))
    );

    let params = json!({ "textDocument": { "uri": URI }, "options": { "tabSize": 4, "insertSpaces": true } });
    let edit = editor.ask("textDocument/formatting", params.clone());
    assert!(edit[0]["newText"].as_str().unwrap().starts_with("fn f(total, n: int) {\n    let a = totl;\n"));
    // The other kernel's types are known in spite of the errors.
    let both = "fn f(total, n: int) { totl }\nkernel k(x: global<f32, (64):(1)>) block(32) { x[0] = 1.0; }\n";
    assert_eq!(editor.open(both).len(), 1);
    let hover = editor.ask_at("textDocument/hover", &at(both, "{ |x[0] = 1.0"));
    assert!(hover["contents"]["value"].as_str().unwrap().contains("x: tensor<f32, global"), "{hover}");
    // A text with a syntax error is reported, and is not formatted.
    let found = editor.open("kernel k() block(32) { let a = 1 }");
    assert!(found[0]["message"].as_str().unwrap().starts_with("missing `;`"), "{found:?}");
    assert_eq!(editor.ask("textDocument/formatting", params), json!([]));
    editor.stop();
}

/// An editor that is killed closes the connection at any time.
#[test]
fn a_closed_connection_is_the_end() {
    let server = |connection: Connection| {
        std::thread::spawn(move || {
            let loader = |_: &Path| Box::new(Parts) as Box<dyn Loader>;
            serve(&connection, Workspace { loader, library_file: |_| None }).map_err(|e| e.to_string())
        })
    };
    let (editor, connection) = Connection::memory();
    let before_the_greeting = server(connection);
    drop(editor);
    assert_eq!(before_the_greeting.join().unwrap(), Ok(()));

    let Editor { connection, server, .. } = Editor::start();
    drop(connection);
    server.join().unwrap();
}
