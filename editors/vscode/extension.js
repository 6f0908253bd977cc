// Starts `weft lsp` and connects the editor to it.

const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

function activate() {
    const command = workspace.getConfiguration("weft").get("command", "weft");
    const server = { command, args: ["lsp"] };
    client = new LanguageClient("weft", "weft", server, { documentSelector: [{ language: "weft" }] });
    return client.start();
}

function deactivate() {
    return client?.stop();
}

module.exports = { activate, deactivate };
