// Block comments, which nest and which a regular expression therefore cannot describe.

#include "tree_sitter/parser.h"

enum Token { BLOCK_COMMENT };

void *tree_sitter_weft_external_scanner_create(void) { return NULL; }
void tree_sitter_weft_external_scanner_destroy(void *state) { (void)state; }
void tree_sitter_weft_external_scanner_deserialize(void *state, const char *buffer, unsigned length) {
    (void)state, (void)buffer, (void)length;
}
unsigned tree_sitter_weft_external_scanner_serialize(void *state, char *buffer) {
    (void)state, (void)buffer;
    return 0;
}

static bool is_space(int32_t c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Reads two characters if they are these, and one otherwise.
static bool read_pair(TSLexer *lexer, int32_t first, int32_t second) {
    bool is_first = lexer->lookahead == first;
    lexer->advance(lexer, false);
    if (!is_first || lexer->lookahead != second) return false;
    lexer->advance(lexer, false);
    return true;
}

bool tree_sitter_weft_external_scanner_scan(void *state, TSLexer *lexer, const bool *wanted) {
    (void)state;
    if (!wanted[BLOCK_COMMENT]) return false;
    while (is_space(lexer->lookahead)) lexer->advance(lexer, true);
    if (!read_pair(lexer, '/', '*')) return false;
    unsigned depth = 1;
    while (depth > 0 && !lexer->eof(lexer)) {
        if (lexer->lookahead == '/') {
            depth += read_pair(lexer, '/', '*');
        } else {
            depth -= read_pair(lexer, '*', '/');
        }
    }
    lexer->result_symbol = BLOCK_COMMENT;
    return depth == 0;
}
