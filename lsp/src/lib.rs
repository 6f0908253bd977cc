//! A language server for `.weft` files: diagnostics, hover, definitions, completion, formatting and quick fixes.

mod document;
mod features;
mod uri;

use document::Document;
use features::file_path;
use lsp_server::{Connection, ErrorCode, Message, Notification, ProtocolError, Request, Response};
use lsp_types::notification::{
    DidChangeTextDocument, DidCloseTextDocument, DidOpenTextDocument, Notification as _, PublishDiagnostics,
};
use lsp_types::request::{
    CodeActionRequest, Completion, Formatting, GotoDefinition, HoverRequest, Request as _,
};
use lsp_types::{
    CodeActionOrCommand, CodeActionParams, CodeActionProviderCapability, CompletionOptions, CompletionParams,
    CompletionResponse, DidChangeTextDocumentParams, DidCloseTextDocumentParams, DidOpenTextDocumentParams,
    DocumentFormattingParams, GotoDefinitionParams, GotoDefinitionResponse, HoverParams,
    HoverProviderCapability, OneOf, PublishDiagnosticsParams, ServerCapabilities, TextDocumentPositionParams,
    TextDocumentSyncCapability, TextDocumentSyncKind, Uri,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use weft_lang::elaborate::Loader;

pub use lsp_server;
pub use lsp_types;

/// The sources of other files for the server.
pub struct Workspace {
    /// Returns the loader of the files that the file at this path uses.
    pub loader: fn(&Path) -> Box<dyn Loader>,
    /// Returns a file with the text of a part of the built-in library, by the part's name.
    pub library_file: fn(&str) -> Option<PathBuf>,
}

/// Serves an editor until it ends the session or closes the connection.
///
/// # Errors
/// Fails if the editor violates the protocol.
pub fn serve(connection: &Connection, workspace: Workspace) -> Result<(), Box<dyn Error + Send + Sync>> {
    match serve_until_end(connection, workspace) {
        Err(e) if has_gone(&*e) => Ok(()),
        result => result,
    }
}

/// The error for an editor that closed the connection without ending the session, for example
/// because it was killed.
#[derive(Debug)]
struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the editor has closed the connection")
    }
}

impl Error for Gone {}

/// Whether an error only means that the connection is closed.
fn has_gone(e: &(dyn Error + Send + Sync + 'static)) -> bool {
    e.is::<Gone>() || e.downcast_ref::<ProtocolError>().is_some_and(ProtocolError::channel_is_disconnected)
}

fn send(connection: &Connection, message: Message) -> Result<(), Gone> {
    connection.sender.send(message).map_err(|_| Gone)
}

fn serve_until_end(
    connection: &Connection,
    workspace: Workspace,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let capabilities = ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Kind(TextDocumentSyncKind::FULL)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(vec![".".into()]),
            ..Default::default()
        }),
        document_formatting_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(CodeActionProviderCapability::Simple(true)),
        ..Default::default()
    };
    connection.initialize(serde_json::to_value(capabilities)?)?;
    let mut server = Server { connection, workspace, documents: HashMap::new() };
    for message in &connection.receiver {
        match message {
            Message::Request(request) => {
                if connection.handle_shutdown(&request)? {
                    return Ok(());
                }
                let response = server.answer(request);
                send(connection, Message::Response(response))?;
            }
            Message::Notification(notification) => server.hear(notification)?,
            Message::Response(_) => {}
        }
    }
    Ok(())
}

struct Server<'a> {
    connection: &'a Connection,
    workspace: Workspace,
    /// The documents by address.
    documents: HashMap<String, Document>,
}

impl Server<'_> {
    fn hear(&mut self, notification: Notification) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Notification { method, params } = notification;
        match method.as_str() {
            DidOpenTextDocument::METHOD => {
                let params: DidOpenTextDocumentParams = serde_json::from_value(params)?;
                self.change(params.text_document.uri, params.text_document.text)
            }
            DidChangeTextDocument::METHOD => {
                let mut params: DidChangeTextDocumentParams = serde_json::from_value(params)?;
                match params.content_changes.pop() {
                    Some(change) => self.change(params.text_document.uri, change.text),
                    None => Ok(()),
                }
            }
            DidCloseTextDocument::METHOD => {
                let params: DidCloseTextDocumentParams = serde_json::from_value(params)?;
                self.documents.remove(params.text_document.uri.as_str());
                self.publish(params.text_document.uri, Vec::new())
            }
            _ => Ok(()),
        }
    }

    fn change(&mut self, uri: Uri, text: String) -> Result<(), Box<dyn Error + Send + Sync>> {
        let key = uri.as_str().to_owned();
        let document = self.documents.entry(key).or_insert_with(|| Document::new(file_path(&uri)));
        document.set(text, &self.workspace);
        let found = document.diagnostics(&uri, &self.workspace);
        self.publish(uri, found)
    }

    fn publish(
        &self,
        uri: Uri,
        diagnostics: Vec<lsp_types::Diagnostic>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let params = PublishDiagnosticsParams::new(uri, diagnostics, None);
        let notification = Notification::new(PublishDiagnostics::METHOD.into(), params);
        Ok(send(self.connection, Message::Notification(notification))?)
    }

    fn answer(&self, request: Request) -> Response {
        let Request { id, method, params } = request;
        let answer = match method.as_str() {
            HoverRequest::METHOD => respond(params, |p: HoverParams| {
                let place = p.text_document_position_params;
                self.at(&place).and_then(|document| document.hover(place.position))
            }),
            GotoDefinition::METHOD => respond(params, |p: GotoDefinitionParams| {
                let place = p.text_document_position_params;
                let document = self.at(&place)?;
                document.definition(place.position, &self.workspace).map(GotoDefinitionResponse::Scalar)
            }),
            Completion::METHOD => respond(params, |p: CompletionParams| {
                let place = p.text_document_position;
                self.at(&place).map(|document| CompletionResponse::Array(document.completion(place.position)))
            }),
            Formatting::METHOD => respond(params, |p: DocumentFormattingParams| {
                self.document(&p.text_document.uri).map(Document::formatting)
            }),
            CodeActionRequest::METHOD => respond(params, |p: CodeActionParams| {
                let uri = p.text_document.uri;
                let actions = self.document(&uri)?.actions(&uri, p.range);
                Some(actions.into_iter().map(CodeActionOrCommand::CodeAction).collect::<Vec<_>>())
            }),
            _ => {
                let message = format!("this server has no `{method}`");
                return Response::new_err(id, ErrorCode::MethodNotFound as i32, message);
            }
        };
        match answer {
            Ok(value) => Response::new_ok(id, value),
            Err(e) => Response::new_err(id, ErrorCode::InvalidParams as i32, e.to_string()),
        }
    }

    fn document(&self, uri: &Uri) -> Option<&Document> {
        self.documents.get(uri.as_str())
    }

    fn at(&self, place: &TextDocumentPositionParams) -> Option<&Document> {
        self.document(&place.text_document.uri)
    }
}

/// Answers a request with these parameters, with `null` if there is no result.
fn respond<P: DeserializeOwned, A: Serialize>(
    params: Value,
    answer: impl FnOnce(P) -> Option<A>,
) -> Result<Value, serde_json::Error> {
    serde_json::to_value(answer(serde_json::from_value(params)?))
}
