//! `expand` writes the code of `#[derive(Words)]`: an enum and the words for its variants, which configs, records and tables share.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Fields, Ident, LitStr, Result, Token, Variant};

/// A variant and what configs call it.
struct Word {
    variant: Ident,
    name: String,
    aliases: Vec<LitStr>,
    listed: bool,
    in_configs: bool,
}

impl Word {
    fn read(variant: &Variant) -> Result<Self> {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new(variant.ident.span(), "a word has no fields"));
        }
        let mut word = Self {
            variant: variant.ident.clone(),
            name: snake_case(&variant.ident.to_string()),
            aliases: Vec::new(),
            listed: true,
            in_configs: true,
        };
        for attribute in variant.attrs.iter().filter(|attribute| attribute.path().is_ident("word")) {
            attribute.parse_args_with(|input: syn::parse::ParseStream<'_>| {
                while !input.is_empty() {
                    if input.peek(LitStr) {
                        word.name = input.parse::<LitStr>()?.value();
                    } else {
                        let argument: Ident = input.call(Ident::parse_any)?;
                        match argument.to_string().as_str() {
                            "alias" => {
                                input.parse::<Token![=]>()?;
                                word.aliases.push(input.parse()?);
                            }
                            "not_listed" => word.listed = false,
                            "not_in_configs" => word.in_configs = false,
                            _ => return Err(Error::new(argument.span(), "unknown argument of a word")),
                        }
                    }
                    if !input.is_empty() {
                        input.parse::<Token![,]>()?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(word)
    }
}

/// `H5adGzip` as `h5ad_gzip`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (i, c) in name.char_indices() {
        if i > 0 && c.is_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

pub fn expand(item: TokenStream) -> Result<TokenStream> {
    let item: DeriveInput = syn::parse2(item)?;
    let (owner, owner_name) = (&item.ident, item.ident.to_string());
    let Data::Enum(data) = &item.data else {
        return Err(Error::new(owner.span(), "words are the variants of an enum"));
    };
    let words: Vec<Word> = data.variants.iter().map(Word::read).collect::<Result<_>>()?;
    let variants: Vec<&Ident> = words.iter().map(|word| &word.variant).collect();
    let names: Vec<&String> = words.iter().map(|word| &word.name).collect();
    let listed: Vec<&Ident> = words.iter().filter(|word| word.listed).map(|word| &word.variant).collect();
    let count = listed.len();
    let rest: Vec<String> = words.iter().filter(|word| !word.listed).map(|word| format!("`{}`", word.name)).collect();
    let documentation = match rest.as_slice() {
        [] => "All variants, in order.".to_owned(),
        rest => format!("All variants but {}, in order.", rest.join(", ")),
    };
    let in_configs = words.iter().filter(|word| word.in_configs).map(|word| &word.name);
    let aliases = words.iter().flat_map(|word| word.aliases.iter().map(move |alias| (alias, &word.name)));
    let aliases = aliases.map(|(alias, name)| quote!((#alias, #name)));
    Ok(quote! {
        impl #owner {
            #[doc = #documentation]
            pub const ALL: [Self; #count] = [#(Self::#listed),*];

            /// The word used in configs, records and tables.
            pub const fn name(self) -> &'static str {
                match self { #(Self::#variants => #names),* }
            }
        }

        impl ::expctl_settings::SettingValue for #owner {
            const TYPE: ::expctl_settings::ValueType =
                ::expctl_settings::ValueType::Choice { words: &[#(#in_configs),*], aliases: &[#(#aliases),*] };
        }

        impl ::serde::Serialize for #owner {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> ::core::result::Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for #owner {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> ::core::result::Result<Self, D::Error> {
                struct Visitor;
                impl ::serde::de::Visitor<'_> for Visitor {
                    type Value = #owner;
                    fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                        f.write_str(concat!("a word of ", #owner_name))
                    }
                    fn visit_str<E: ::serde::de::Error>(self, word: &str) -> ::core::result::Result<#owner, E> {
                        match word {
                            #(#names => Ok(#owner::#variants),)*
                            unknown => Err(E::unknown_variant(unknown, &[#(#names),*])),
                        }
                    }
                }
                from.deserialize_str(Visitor)
            }
        }
    })
}
