//! From the syntax of transformers' Jinja to that of the engine.
//!
//! `{% generation %}` becomes a call block, which is what transformers' own extension makes of it,
//! and escapes in strings become ones that both read alike.

/// The function that generation blocks call.
pub(super) const GENERATION: &str = "__generation__";

/// A template in the engine's syntax.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) source: String,
    pub(super) has_generation: bool,
}

/// Translates a template. What is not well-formed is copied; the engine says where it is wrong.
pub(super) fn translate(source: &str) -> Translated {
    // Jinja knows one kind of line end.
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = Translated {
        source: String::with_capacity(source.len()),
        has_generation: false,
    };
    let mut rest = source.as_str();
    while let Some(start) = next_tag(rest) {
        let (text, tag) = rest.split_at(start);
        out.source.push_str(text);
        rest = match &tag[..2] {
            "{#" => copy_until(&mut out.source, tag, "#}"),
            "{%" => block(&mut out, tag),
            _ => expression(&mut out.source, tag, "}}"),
        };
    }
    out.source.push_str(rest);
    out
}

fn next_tag(text: &str) -> Option<usize> {
    text.match_indices('{')
        .map(|(at, _)| at)
        .find(|at| matches!(text.as_bytes().get(at + 1), Some(b'{' | b'%' | b'#')))
}

/// Copies up to and with `end`; gives the rest.
fn copy_until<'a>(out: &mut String, text: &'a str, end: &str) -> &'a str {
    let length = text.find(end).map_or(text.len(), |at| at + end.len());
    out.push_str(&text[..length]);
    &text[length..]
}

/// A `{% .. %}` at the start of `tag`; gives the rest.
fn block<'a>(out: &mut Translated, tag: &'a str) -> &'a str {
    let inner = &tag[2..];
    let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
    let opening = &tag[..tag.len() - inner.len()];
    let word = &inner[..inner
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(inner.len())];
    let after = &inner[word.len()..];
    let replacement = match word {
        "generation" => format!("call {GENERATION}()"),
        "endgeneration" => "endcall".to_owned(),
        "raw" => {
            let end = end_of_raw(tag);
            let (raw, rest) = tag.split_at(end);
            match raw.split_once("%}\n") {
                // The engine drops a line end behind the tag, Jinja does not.
                Some((opening, body)) if !opening.contains("%}") && !opening.ends_with('-') => {
                    out.source.push_str(opening);
                    out.source.push_str("%}\n\n");
                    out.source.push_str(body);
                }
                _ => out.source.push_str(raw),
            }
            return rest;
        }
        _ => return expression(&mut out.source, tag, "%}"),
    };
    out.has_generation = true;
    out.source.push_str(opening);
    out.source.push_str(&replacement);
    copy_until(&mut out.source, after, "%}")
}

/// Where the `{% endraw %}` ends that belongs to the `{% raw %}` at the start.
fn end_of_raw(tag: &str) -> usize {
    let end = tag.match_indices("{%").find_map(|(at, _)| {
        let inner = &tag[at + 2..];
        let inner = inner.strip_prefix(['-', '+']).unwrap_or(inner).trim_start();
        let close = inner.strip_prefix("endraw")?.trim_start();
        let close = close.strip_prefix(['-', '+']).unwrap_or(close);
        let rest = close.strip_prefix("%}")?;
        Some(tag.len() - rest.len())
    });
    end.unwrap_or(tag.len())
}

/// Copies up to and with the `end` that is not in a string; gives the rest.
fn expression<'a>(out: &mut String, text: &'a str, end: &str) -> &'a str {
    // What the tag begins with is no part of an operator.
    let mut at = 2;
    out.push_str(&text[..at]);
    // A `}}` may close two objects; the engine counts brackets, and so must this.
    let mut open = 0_usize;
    while let Some(character) = text[at..].chars().next() {
        if open == 0 && text[at..].starts_with(end) {
            out.push_str(end);
            return &text[at + end.len()..];
        }
        match character {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            '"' | '\'' => {
                at += string(out, &text[at..], character);
                continue;
            }
            _ => {}
        }
        out.push(character);
        at += character.len_utf8();
    }
    ""
}

/// Copies the string literal at the start of `text`; gives its length there.
fn string(out: &mut String, text: &str, quote: char) -> usize {
    let mut characters = text.char_indices();
    characters.next();
    out.push(quote);
    while let Some((at, character)) = characters.next() {
        if character == quote {
            out.push(quote);
            return at + quote.len_utf8();
        }
        if character != '\\' {
            out.push(character);
            continue;
        }
        let Some((_, escaped)) = characters.next() else {
            out.push(character);
            break;
        };
        let digits = characters.as_str().get(..8).filter(|_| escaped == 'U');
        let wide = digits
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .and_then(char::from_u32);
        match (escaped, wide) {
            ('/', _) => out.push_str(r"\\/"),
            ('a', _) => out.push_str(r"\x07"),
            ('v', _) => out.push_str(r"\x0b"),
            ('\n', _) => {}
            (_, Some(wide)) => {
                if matches!(wide, '\\' | '"' | '\'') {
                    out.push('\\');
                }
                out.push(wide);
                characters.nth(7);
            }
            _ => out.extend(['\\', escaped]),
        }
    }
    text.len()
}
